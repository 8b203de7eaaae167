/*
 * A SIGSEGV handler that leaves by siglongjmp over the faulting frames.
 *
 * Calls: main -> attempt, 2 times -> middle -> touch, which faults; on_fault 2, jumps back into
 * attempt; attempt -> recovered, 2 times.
 */
#include "called.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static sigjmp_buf back;
static int *volatile nowhere;

CALLED static void on_fault(int number)
{
    siglongjmp(back, number);
}

CALLED static int touch(void) { return *nowhere; }

CALLED static int middle(void)
{
    int value = touch();
    KEEP(value);
    return value;
}

CALLED static int recovered(int number) { return number == SIGSEGV; }

CALLED static int attempt(void)
{
    int number = sigsetjmp(back, 1);
    if (number == 0)
        return middle();
    int answer = recovered(number);
    KEEP(answer);
    return answer;
}

int main(void)
{
    signal(SIGSEGV, on_fault);
    int sum = attempt();
    sum += attempt();
    printf("recovered %d times\n", sum);
    return 0;
}
