/*
 * Division by zero: SIGFPE, left by siglongjmp.
 *
 * Calls: main -> safe_divide, 4 times -> divide, 4 times, 2 of which fault -> (signal) on_fault, 2
 * times, jumps back into safe_divide.
 */
#include "called.h"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static sigjmp_buf back;

CALLED static void on_fault(int number)
{
    siglongjmp(back, number);
}

CALLED static int divide(int a, int b)
{
    int quotient;
    /* In assembly, so that the compiler can't use what C says of a division by zero. */
    __asm__ volatile("cltd\n\tidivl %2" : "=a"(quotient) : "0"(a), "r"(b) : "edx", "cc");
    return quotient;
}

CALLED static int safe_divide(int a, int b)
{
    if (sigsetjmp(back, 1) != 0)
        return -1;
    int quotient = divide(a, b);
    KEEP(quotient);
    return quotient;
}

int main(void)
{
    signal(SIGFPE, on_fault);
    int a = safe_divide(12, 4);
    int b = safe_divide(12, 0);
    int c = safe_divide(0, 0);
    int d = safe_divide(20, 4);
    printf("%d %d %d %d\n", a, b, c, d);
    return 0;
}
