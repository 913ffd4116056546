// The socket to the process that learns: JSON both ways, and numbers behind a JSON head.
export type Arrays = Record<string, Float32Array | Uint8Array>;
export type Told = { kind: string; [field: string]: any };
export type Handler = (told: Told, arrays: Arrays) => void;

export function unpack(buffer: ArrayBuffer): [Told, Arrays] {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays: Arrays = {};
  let at = 4 + length;
  for (const [name, kind, count] of head.arrays as [string, string, number][]) {
    arrays[name] = kind === "f4" ? new Float32Array(buffer, at, count) : new Uint8Array(buffer, at, count);
    at += count * (kind === "f4" ? 4 : 1);
  }
  return [head, arrays];
}

export class Wire {
  private socket: WebSocket;
  open = false;

  constructor(hear: Handler, gone: (reason: string) => void) {
    const address = new URL("socket", location.href);
    address.protocol = "ws:";
    address.hash = "";
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => (this.open = true);
    this.socket.onmessage = (event) => {
      const [told, arrays] = typeof event.data === "string" ? [JSON.parse(event.data), {}] : unpack(event.data);
      if (told.kind === "frame") this.send("ack");
      hear(told, arrays);
    };
    this.socket.onclose = (event) => {
      const never = !this.open;
      this.open = false;
      gone(event.code >= 4001 && event.reason ? event.reason : never
        ? "meshnn play does not answer: it has ended, or the address is of an earlier start. Start it again and open the address it prints."
        : "The connection is gone: meshnn play has ended. Start it again; the net is still in this page, and its link opens it there.");
    };
  }

  send(what: string, fields: Record<string, unknown> = {}): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ do: what, ...fields }));
  }
}
