/*
 * Ends by an unhandled SIGSEGV.
 *
 * Calls: main -> prepare, once; main -> outer -> inner, once each, where it crashes.
 */
#include "called.h"
#include <stdio.h>

static int *volatile nowhere;

CALLED static void prepare(void)
{
    printf("before\n");
    fflush(stdout);
    STAY();
}

CALLED static int inner(void) { return *nowhere; }

CALLED static int outer(void)
{
    int value = inner();
    KEEP(value);
    return value;
}

int main(void)
{
    prepare();
    int value = outer();
    printf("never %d\n", value);
    return 0;
}
