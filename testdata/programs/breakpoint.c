/*
 * The program's own breakpoints: `int3` with a SIGTRAP handler.
 *
 * Calls: main -> stop_here, 3 times, which runs int3 -> (signal) on_trap: 3.
 *
 * TRAP_FLAGS is SA_NODEFER, or 0. With 0 SIGTRAP is blocked in the handler, and a program that is
 * single-stepped there loses its handler: Linux forces the trap's signal on it and resets the action.
 */
#include "called.h"
#include <signal.h>
#include <stdio.h>

static volatile int traps;

CALLED static void on_trap(int number) { traps += number == SIGTRAP; }

CALLED static int stop_here(int value)
{
    __asm__ volatile("int3" : : : "memory");
    return value + traps;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_trap, .sa_flags = TRAP_FLAGS};
    sigaction(SIGTRAP, &action, NULL);
    int sum = 0;
    for (int i = 0; i < 3; i++)
        sum += stop_here(i);
    printf("traps %d, sum %d\n", traps, sum);
    return 0;
}
