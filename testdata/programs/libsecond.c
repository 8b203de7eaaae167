/*
 * A library for dynamic_load.c, with other code than libfirst.c at the same offsets.
 * Calls: compute -> second_step, 5 times.
 */
#include "called.h"

static const int weights[5] = {3, 1, 4, 1, 5};

CALLED static int second_step(int value, int weight)
{
    if (weight % 2)
        return value * 2 + weight;
    return value - weight;
}

CALLED int compute(int value)
{
    for (int i = 4; i >= 0; i--) {
        value = second_step(value, weights[i]);
        KEEP(value);
    }
    return value;
}
