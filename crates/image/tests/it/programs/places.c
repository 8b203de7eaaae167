/* Functions that are called, copied into others, or both; one line of code on each line. */
#include <stdio.h>
#include <stdlib.h>

static inline __attribute__((always_inline)) int twice(int x) {
    return x * 2 + rand();
}

__attribute__((noinline)) int first(int x) {
    int sum = twice(x);
    sum += twice(sum + 1);
    return sum;
}

__attribute__((noinline)) int second(int x) {
    return twice(x) - 1;
}

/* No code here. */

int main(int argc, char **argv) {
    (void)argv;
    printf("%d\n", first(argc) + second(argc));
    return 0;
}
