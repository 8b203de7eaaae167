/*
 * A small interpreter with computed goto: many indirect jumps inside one function.
 *
 * Calls: main -> interpret, 2 times; interpret -> output, 5 times a call: 10.
 */
#include "called.h"
#include <stdio.h>

enum { PUSH, ADD, DECREMENT, JUMP_IF, OUTPUT, HALT };

static long printed;

CALLED static void output(long value) { printed = printed * 3 + value; }

CALLED static long interpret(const signed char *code, long counter)
{
    static const void *const labels[] = {&&push, &&add, &&decrement, &&jump_if, &&out, &&halt};
    const signed char *at = code;
    long sum = 0;
    long top = 0;
#define NEXT goto *labels[(int)*at++]
    NEXT;
push:
    top = *at++;
    NEXT;
add:
    sum += top;
    NEXT;
decrement:
    counter--;
    NEXT;
jump_if:
    at += counter ? *at : 1;
    NEXT;
out:
    output(sum);
    NEXT;
halt:
    return sum;
}

int main(void)
{
    static const signed char code[] = {PUSH, 3, ADD, OUTPUT, DECREMENT, JUMP_IF, -6, HALT};
    long sum = interpret(code, 5);
    sum += interpret(code, 5);
    printf("%ld %ld\n", sum, printed);
    return 0;
}
