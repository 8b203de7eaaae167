/*
 * An illegal instruction: `ud2`, which the SIGILL handler skips.
 *
 * Calls: main -> trip, 2 times, which runs ud2 -> (signal) on_illegal -> skip: 2 each.
 */
#define _GNU_SOURCE
#include "called.h"
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

static volatile int skipped;

CALLED static void skip(ucontext_t *context)
{
    context->uc_mcontext.gregs[REG_RIP] += 2;
    skipped++;
}

CALLED static void on_illegal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    skip(context);
    STAY();
}

CALLED static int trip(int value)
{
    __asm__ volatile("ud2" : : : "memory");
    return value + skipped;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    int sum = trip(10);
    sum += trip(20);
    printf("skipped %d, sum %d\n", skipped, sum);
    return 0;
}
