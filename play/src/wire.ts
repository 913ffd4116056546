// The socket to the training process: JSON in both directions, or a JSON head followed by arrays.
export type Arrays = Record<string, Float32Array | Uint8Array>;
export type Message = { kind: string; [field: string]: any };
export type Handler = (message: Message, arrays: Arrays) => void;

export function unpack(buffer: ArrayBuffer): [Message, Arrays] {
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

  constructor(receive: Handler, closed: (reason: string) => void) {
    const address = new URL("socket", location.href);
    address.protocol = "ws:";
    address.hash = "";
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => (this.open = true);
    this.socket.onmessage = (event) => {
      const [message, arrays] = typeof event.data === "string" ? [JSON.parse(event.data), {}] : unpack(event.data);
      if (message.kind === "frame") this.send("ack");
      receive(message, arrays);
    };
    this.socket.onclose = (event) => {
      const never = !this.open;
      this.open = false;
      closed(event.code >= 4001 && event.reason ? event.reason : never
        ? "meshnn play does not answer: it has ended, or this is the address of an earlier start. Start it again and open the address that it prints."
        : "The connection is closed: meshnn play has ended. The net is still in this page: start meshnn play again and open the link of the net.");
    };
  }

  send(what: string, fields: Record<string, unknown> = {}): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ do: what, ...fields }));
  }
}
