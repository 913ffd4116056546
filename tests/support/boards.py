"""Compile, measure and run C programs on this computer and on simulated boards.

    run_on("m4f", source, {"net.h": header})         the output of the program
    built = build("m4f", source, headers)            built.sizes(), built.symbols(), built.run()
    load(source, headers, "-std=c99 -O2")            a shared library, for ctypes
    instructions("m4f", setup, work, headers)        number of instructions of `work`

Boards are "m3" (Cortex-M3 without floating-point unit), "m4f" (Cortex-M4 with a unit for 32 bits) and "avr"
(ATmega2560, 8 bits). If a tool is missing, the test is skipped with its name.
"""

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

#: Warnings under which a header must compile without a message.
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Wdouble-promotion", "-Werror")
_ARM = ("arm-none-eabi-gcc", "-mthumb")
BOARDS = {
    "m3": (*_ARM, "-mcpu=cortex-m3", "-mfloat-abi=soft"),
    "m4f": (*_ARM, "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "avr": ("avr-gcc", "-mmcu=atmega2560"),
}
MACHINES = {"m3": "mps2-an385", "m4f": "mps2-an386"}

_SAY_BITS = """
void put_bits(uint32_t word) {
    char text[10];
    int8_t i;
    for (i = 7; i >= 0; i--) {
        uint8_t nibble = (uint8_t)(word & 15u);
        text[i] = (char)(nibble < 10u ? '0' + nibble : 'a' + nibble - 10u);
        word >>= 4;
    }
    text[8] = '\\n';
    text[9] = 0;
    put(text);
}
"""
# Start-up code of the ARM boards: vector table, floating-point unit, copied data; printing and exit through the
# debugger interface of the simulator. There is no C library.
_START = """
#include <stdint.h>
extern uint32_t stack_top, data_from, data_begin, data_end, bss_begin, bss_end;
int main(void);
void put(const char *text);
void put_bits(uint32_t word);
void start(void);
void fault(void);
static inline int board_call(int what, const void *with) {
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
void put(const char *text) { board_call(0x04, text); }
void fault(void) {
    put("FAULT\\n");
    board_call(0x18, (const void *)0x20023);
    for (;;) {}
}
void start(void) {
    uint32_t *from = &data_from, *to;
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20;
    __asm__ volatile("dsb\\nisb");
#endif
    for (to = &data_begin; to < &data_end;) *to++ = *from++;
    for (to = &bss_begin; to < &bss_end;) *to++ = 0u;
    (void)main();
    board_call(0x18, (const void *)0x20026);
    for (;;) {}
}
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
    0, 0, 0, 0, (void *)fault, (void *)fault, 0, (void *)fault, (void *)fault,
};
/* what compilers call for copies and fills of structs */
void *memcpy(void *to, const void *from, unsigned n);
void *memset(void *to, int value, unsigned n);
void *memmove(void *to, const void *from, unsigned n);
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memcpy(void *to, const void *from, unsigned n) {
    char *t = to; const char *f = from;
    while (n--) *t++ = *f++;
    return to;
}
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void *memset(void *to, int value, unsigned n) {
    char *t = to;
    while (n--) *t++ = (char)value;
    return to;
}
"""
_LAYOUT = """
MEMORY { FLASH (rx) : ORIGIN = 0x0, LENGTH = 4M  RAM (rw) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
    .ARM.exidx : { *(.ARM.exidx*) } > FLASH
    data_from = LOADADDR(.data);
    .data : { data_begin = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
    .bss (NOLOAD) : { bss_begin = .; *(.bss* COMMON) . = ALIGN(4); bss_end = .; } > RAM
    stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
ENTRY(start)
"""
# On AVR a program prints through its serial port and ends with the sleep instruction.
_AVR = """
#include <stdint.h>
#define CONTROL (*(volatile uint8_t *)0xc1)
#define READY (*(volatile uint8_t *)0xc0)
#define BYTE (*(volatile uint8_t *)0xc6)
int program(void);
int main(void);
void put(const char *text);
void put_bits(uint32_t word);
void put(const char *text) {
    while (*text) {
        while (!(READY & 0x20)) {}
        BYTE = (uint8_t)*text++;
    }
}
int main(void) {
    uint16_t wait;
    CONTROL = 0x08;
    (void)program();
    for (wait = 0; wait < 60000u; wait++) __asm__ volatile("");
    *(volatile uint8_t *)0x53 = 1; /* sleep is allowed */
    __asm__ volatile("cli\\n\\tsleep");
    for (;;) {}
}
"""
#: Declarations at the start of programs for boards.
PRINTING = "#include <stdint.h>\nvoid put(const char *text);\nvoid put_bits(uint32_t word);\n"


def needs(*tools):
    """Skip the test if the tool is missing, with its name."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def _call(arguments, **options):
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@cache
def _temporary():
    """Return the parent of all build folders, which is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="meshnn-boards-")


def _folder(source, headers):
    folder = Path(tempfile.mkdtemp(dir=_temporary().name))
    (folder / "main.c").write_text(source)
    for name, text in headers.items():
        (folder / name).write_text(text)
    return folder


@dataclass
class Built:
    """A program that was built for a board."""

    board: str
    path: Path

    def sizes(self):
        """Return the bytes of `text` (code and constants), `data` and `bss`."""
        tool = "avr-size" if self.board == "avr" else "arm-none-eabi-size"
        found = _call([tool, self.path]).splitlines()[1].split()
        return dict(zip(("text", "data", "bss"), map(int, found[:3]), strict=True))

    def symbols(self):
        """Return the bytes of every function and table by name."""
        tool = "avr-nm" if self.board == "avr" else "arm-none-eabi-nm"
        lines = (line.split() for line in _call([tool, "-S", self.path]).splitlines())
        return {line[3]: int(line[1], 16) for line in lines if len(line) == 4}

    def undefined(self):
        """Return the names that a library would have to define."""
        tool = "avr-nm" if self.board == "avr" else "arm-none-eabi-nm"
        return sorted(line.split()[-1] for line in _call([tool, "-u", self.path]).splitlines())

    def stack(self, function):
        """Return the stack in bytes of a function and its callees; the program must be built with `-fstack-usage`."""
        found = {}
        for path in self.path.parent.glob("*.su"):
            for line in path.read_text().splitlines():
                place, size, kind = line.split("\t")
                assert kind == "static", line
                found[place.split(":")[-1]] = int(size)
        return found[function]

    def run(self, *options, seconds=120):
        """Return the output of the program in qemu or simavr."""
        if self.board == "avr":
            needs("simavr")
            call = ["simavr", "-m", "atmega2560", "-f", "16000000", self.path]
            done = subprocess.run(call, capture_output=True, text=True, timeout=seconds, check=False)
            output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
            assert done.returncode == 0, output[-3000:]
            return output.replace(".\n", "\n")  # simavr prints a new line as a dot, too
        needs("qemu-system-arm")
        machine = ("-M", MACHINES[self.board], "-nographic", "-monitor", "none", "-serial", "none")
        semihosting = ("-semihosting-config", "enable=on,target=native")
        done = subprocess.run(
            ["qemu-system-arm", *machine, *semihosting, *options, "-kernel", self.path],
            capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-3000:]
        assert "FAULT" not in output, output[-3000:]
        return output


def build(board, source, headers, flags="-std=c99 -O2", link=True):
    """Compile for a board; `source` prints with `put` and `put_bits` (see PRINTING) and has a `main`."""
    compiler, *machine = BOARDS[board]
    needs(compiler)
    folder = _folder(source, headers)
    common = [compiler, *machine, *flags.split(), "-ffunction-sections", "-fdata-sections"]
    _call([*common, *WARNINGS, "-fstack-usage", "-c", folder / "main.c", "-o", folder / "main.o"], cwd=folder)
    if not link:
        return Built(board, folder / "main.o")
    if board == "avr":
        (folder / "start.c").write_text(_AVR + _SAY_BITS)
        _call([*common, "-Dmain=program", *WARNINGS, "-c", folder / "main.c", "-o", folder / "main.o"], cwd=folder)
        _call([*common, "-c", folder / "start.c", "-o", folder / "start.o"])
        files = [folder / "start.o", folder / "main.o"]
        _call([*common, *files, "-o", folder / "main.elf", "-Wl,--gc-sections"])
        return Built(board, folder / "main.elf")
    (folder / "start.c").write_text(_START + _SAY_BITS)
    (folder / "board.ld").write_text(_LAYOUT)
    _call([compiler, *machine, "-std=gnu99", "-O2", "-c", folder / "start.c", "-o", folder / "start.o"])
    _call(
        [*common, "-nostdlib", folder / "start.o", folder / "main.o", "-lgcc", "-o", folder / "main.elf",
         "-T", folder / "board.ld", "-Wl,--gc-sections"]
    )  # fmt: skip
    return Built(board, folder / "main.elf")


def run_on(board, source, headers, flags="-std=c99 -O2"):
    """Return the output of a program on a board."""
    needs(BOARDS[board][0], "qemu-system-arm")
    return build(board, source, headers, flags).run()


_COUNTING = """
#define TICKS (*(volatile uint32_t *)0xe000e018)
static uint32_t count_between(uint32_t from, uint32_t to) { return (from - to) & 0xffffffu; }
"""


def instructions(board, setup, work, headers, flags="-std=c99 -O2", before=""):
    """Return the number of instructions of the C statements `work`, which run after `setup`.

    In the simulator every instruction takes 1 ns. Its SysTick counts cycles of 40 ns, so the work is repeated 64 times
    between two readings of the counter, and the count of an empty loop is subtracted.
    """
    times = 64
    source = f"""{PRINTING}{_COUNTING}{before}
int main(void) {{
    uint32_t from, to, empty;
    int time;
    *(volatile uint32_t *)0xe000e014 = 0xffffffu;
    *(volatile uint32_t *)0xe000e018 = 0u;
    *(volatile uint32_t *)0xe000e010 = 5u;
    {setup}
    from = TICKS;
    for (time = 0; time < {times}; time++) {{ __asm__ volatile("" ::: "memory"); }}
    to = TICKS;
    empty = count_between(from, to);
    from = TICKS;
    for (time = 0; time < {times}; time++) {{ {work} __asm__ volatile("" ::: "memory"); }}
    to = TICKS;
    put_bits(count_between(from, to) - empty);
    return 0;
}}
"""
    output = build(board, source, headers, flags).run("-icount", "shift=0")
    return int(re.findall("[0-9a-f]{8}", output)[-1], 16) * 40 // times


def load(source, headers, flags="-std=c99 -O2", compiler="gcc"):
    """Compile a source into a shared library for this computer, with all warnings."""
    needs(compiler)
    folder = _folder(source, headers)
    library = folder / f"{hashlib.sha256((source + flags).encode()).hexdigest()[:12]}.so"
    language = ("-x", "c++") if compiler == "g++" else ()
    _call([compiler, *flags.split(), *WARNINGS, *language, "-shared", "-fPIC", folder / "main.c", "-o", library])
    return ctypes.CDLL(str(library))


def painted(before, work):
    """Return a program that prints the stack in bytes of `work`: it fills the stack with a pattern first."""
    return f"""{PRINTING}{before}
__attribute__((noinline)) static void work_here(void) {{ {work} }}
int main(void) {{
    volatile uint32_t *here, *at;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (at = here - 4096; at < here - 4; at++) *at = 0xa5a5a5a5u;
    work_here();
    for (at = here - 4096; at < here && *at == 0xa5a5a5a5u; at++) {{}}
    put_bits((uint32_t)(here - at) * 4u);
    return 0;
}}
"""
