/*
 * A handler called three times by raise, from inside a function.
 *
 * Calls: main -> work, 3 times -> raise -> (signal) on_signal -> count_signal: on_signal 3, count_signal 3.
 */
#include "called.h"
#include <signal.h>
#include <stdio.h>

static volatile int seen;

CALLED static void count_signal(int number) { seen += number; }

CALLED static void on_signal(int number)
{
    count_signal(number);
    STAY();
}

CALLED static void work(void)
{
    raise(SIGUSR1);
    STAY();
}

int main(void)
{
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 3; i++)
        work();
    printf("seen = %d\n", seen / SIGUSR1);
    return 0;
}
