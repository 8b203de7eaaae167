/*
 * A library for dynamic_load.c. Calls: compute -> first_step, 3 times.
 */
#include "called.h"

CALLED static int first_step(int value) { return value + 1; }

CALLED int compute(int value)
{
    for (int i = 0; i < 3; i++) {
        value = first_step(value);
        KEEP(value);
    }
    return value;
}
