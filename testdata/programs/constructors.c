/*
 * Functions that run before and after main.
 *
 * Calls, in this order: before_first, before_second (from .init_array, the latter calls prepare),
 * main -> work, at_exit_last, at_exit_first (by atexit, in reverse), after (from .fini_array).
 * Each once; prepare 2 (before_second, work).
 */
#include "called.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int prepared;

CALLED static void prepare(void) { prepared++; }

__attribute__((constructor(101))) CALLED static void before_first(void) { prepared = 10; }

__attribute__((constructor(102))) CALLED static void before_second(void)
{
    prepare();
    STAY();
}

__attribute__((destructor)) CALLED static void after(void)
{
    if (write(1, "after\n", 6) != 6)
        _exit(3);
}

CALLED static void at_exit_first(void) { printf("exit first\n"); fflush(stdout); }
CALLED static void at_exit_last(void) { printf("exit last\n"); fflush(stdout); }

CALLED static void work(void)
{
    prepare();
    STAY();
}

int main(void)
{
    atexit(at_exit_first);
    atexit(at_exit_last);
    work();
    printf("prepared %d\n", prepared);
    return 0;
}
