/*
 * Callbacks from the C library: qsort and bsearch.
 *
 * Calls: main -> qsort -> ... -> by_value (as often as this C library's sort compares: the program
 * prints it); main -> find, 3 times -> bsearch -> by_key, 9 times (it halves 10 elements). bsearch may
 * be inlined from the C library's headers.
 */
#include "called.h"
#include <stdio.h>
#include <stdlib.h>

static int compared;

CALLED static int by_value(const void *a, const void *b)
{
    compared++;
    return *(const int *)a - *(const int *)b;
}

CALLED static int by_key(const void *key, const void *element)
{
    return *(const int *)key - *(const int *)element;
}

CALLED static long find(const int *values, int key)
{
    const int *found = bsearch(&key, values, 10, sizeof *values, by_key);
    return found ? found - values : -1;
}

int main(void)
{
    int values[10] = {9, 4, 7, 1, 8, 2, 6, 3, 5, 0};
    qsort(values, 10, sizeof *values, by_value);
    for (int i = 0; i < 10; i++)
        printf("%d ", values[i]);
    printf("\n%ld %ld %ld\n", find(values, 0), find(values, 11), find(values, 2));
    printf("count by_value %d\n", compared);
    return 0;
}
