/*
 * longjmp past frames of the function in which it lands.
 *
 * Calls: main -> visit(6), which calls itself down to visit(0): 7 calls. visit(4) calls setjmp, by
 * mark; visit(0) calls leave, which jumps back into visit(4), past visit(3) to visit(0). visit(4)
 * then calls after, once. This three times: 21 calls of visit, 3 of leave, 3 of after.
 */
#include "called.h"
#include <setjmp.h>
#include <stdio.h>

static jmp_buf mark;

CALLED static void leave(void)
{
    longjmp(mark, 1);
}

CALLED static int after(int n) { return n + 1; }

CALLED static int visit(int n)
{
    if (n == 4 && setjmp(mark) != 0)
        return after(n) * 100;
    if (n == 0)
        leave();
    int below = visit(n - 1);
    KEEP(below);
    return below + n;
}

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 3; i++)
        sum += visit(6);
    printf("sum = %d\n", sum);
    return 0;
}
