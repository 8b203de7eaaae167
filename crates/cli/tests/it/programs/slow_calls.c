/* Calls slow_call(n) for n = 1 .. ROUNDS; every 1,000th call sleeps. With an argument: until that many
   slow calls, after a line on standard input. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

volatile unsigned total;

__attribute__((noinline)) void slow_call(unsigned number) {
    total += number;
    if (number % 1000 == 0)
        usleep(1000);
}

/* Indirect calls, which take some bytes of trace. */
__attribute__((noinline)) void odd(void) { __asm__ volatile(""); }
__attribute__((noinline)) void even(void) { __asm__ volatile("nop"); }
void (*volatile first)(void) = odd, (*volatile second)(void) = even;

/* Reaches slow_call by a jump when optimized. */
__attribute__((noinline)) void outer(unsigned number) {
    total ^= number;
    slow_call(number);
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? atoi(argv[1]) : 5500;
    if (argc > 2) {
        puts("ready");
        fflush(stdout);
        if (getchar() == EOF)
            return 1;
    }
    for (unsigned number = 1; number <= rounds; number++) {
        first();
        second();
        outer(number);
    }
    printf("%u\n", total);
    return 0;
}
