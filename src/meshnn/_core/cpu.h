/* The best instruction set of this processor among those that the kernels are compiled for: 2, 3 or 4 for x86-64-v2, v3 and
   v4; 1 for an older x86; 0 for any other processor. Also a program that prints it, with which the build finds the host's. */
#ifndef MESHNN_CPU_H
#define MESHNN_CPU_H
#if defined(__x86_64__)
#include <cpuid.h>
static unsigned meshnn_saved_registers(void) { /* the wide registers that the system saves */
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
static int meshnn_cpu_level(void) {
    unsigned a, b, c, d, b7, c7, d7;
    const unsigned v2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;  /* sse3, ssse3, cx16, sse4.1, 4.2, popcnt */
    const unsigned v3 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;           /* fma, movbe, osxsave, avx, f16c */
    const unsigned v3_7 = 1u << 3 | 1u << 5 | 1u << 8;                                  /* bmi1, avx2, bmi2 */
    const unsigned v4_7 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;         /* avx512 f, dq, cd, bw, vl */
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & v2) != v2) return 1;
    if ((c & v3) != v3 || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || (b7 & v3_7) != v3_7) return 2;
    if ((meshnn_saved_registers() & 0x06) != 0x06) return 2;
    return (b7 & v4_7) == v4_7 && (meshnn_saved_registers() & 0xe6) == 0xe6 ? 4 : 3;
}
#else
static int meshnn_cpu_level(void) { return 0; }
#endif
#ifdef MESHNN_CPU_PROGRAM
#include <stdio.h>
int main(void) { return printf("%d\n", meshnn_cpu_level()) > 0 ? 0 : 1; }
#endif
#endif
