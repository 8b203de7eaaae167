/*
 * The library of library_calls.c. Calls: library_visit -> visitor, `count` times.
 */
#include "called.h"

CALLED int library_scale(int value) { return value * 10; }

CALLED int library_visit(int (*visitor)(int), int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += visitor(i);
    return sum;
}
