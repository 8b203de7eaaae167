/*
 * Recursion with two calls per frame.
 *
 * Calls: main -> fib(10); fib calls itself: 177 calls of fib in all, 10 deep.
 */
#include "called.h"
#include <stdio.h>

CALLED static int fib(int n)
{
    if (n < 2)
        return n;
    int first = fib(n - 1);
    KEEP(first);
    int second = fib(n - 2);
    KEEP(second);
    return first + second;
}

int main(void)
{
    printf("fib(10) = %d\n", fib(10));
    return 0;
}
