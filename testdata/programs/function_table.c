/*
 * Indirect calls through a table of function pointers, from one call site to four targets.
 *
 * Calls: main -> apply, 12 times; apply -> add, subtract, multiply, exclusive: 3 times each.
 */
#include "called.h"
#include <stdio.h>

typedef long operation(long, long);

CALLED static long add(long a, long b) { return a + b; }
CALLED static long subtract(long a, long b) { return a - b; }
CALLED static long multiply(long a, long b) { return a * b; }
CALLED static long exclusive(long a, long b) { return a ^ b; }

static operation *volatile table[4] = {add, subtract, multiply, exclusive};

CALLED static long apply(unsigned index, long a, long b)
{
    long result = table[index](a, b);
    KEEP(result);
    return result;
}

int main(void)
{
    long value = 5;
    for (unsigned i = 0; i < 12; i++)
        value = apply(i % 4, value, (long)i + 1) & 0xffff;
    printf("value = %ld\n", value);
    return 0;
}
