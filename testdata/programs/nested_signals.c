/*
 * A signal inside a signal handler.
 *
 * Calls: main -> work, 2 times -> raise -> (signal) on_first -> raise -> (signal) on_second -> note:
 * on_first 2, on_second 2, note 4 (each handler once).
 */
#include "called.h"
#include <signal.h>
#include <stdio.h>

static volatile int depth, deepest, notes;

CALLED static void note(void)
{
    notes++;
    if (depth > deepest)
        deepest = depth;
}

CALLED static void on_second(int number)
{
    (void)number;
    depth++;
    note();
    depth--;
}

CALLED static void on_first(int number)
{
    (void)number;
    depth++;
    raise(SIGUSR2);
    note();
    depth--;
}

CALLED static void work(void)
{
    raise(SIGUSR1);
    STAY();
}

int main(void)
{
    signal(SIGUSR1, on_first);
    signal(SIGUSR2, on_second);
    work();
    work();
    printf("deepest %d, notes %d\n", deepest, notes);
    return 0;
}
