/*
 * A program linked against its own shared library, which calls back into the program.
 *
 * Calls: main -> library_visit (in libvisit.so), 2 times -> visitor (in the program), 3 times a
 * call: 6; visitor -> library_scale (in libvisit.so), once a call: 6.
 */
#include "called.h"
#include <stdio.h>

int library_visit(int (*visitor)(int), int count);
int library_scale(int value);

CALLED static int visitor(int value)
{
    int scaled = library_scale(value);
    KEEP(scaled);
    return scaled + 1;
}

int main(void)
{
    int sum = library_visit(visitor, 3);
    sum += library_visit(visitor, 3);
    printf("sum = %d\n", sum);
    return 0;
}
