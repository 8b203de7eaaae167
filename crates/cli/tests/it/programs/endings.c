/* One line of code on each line. With an argument it ends by a crash, else by exit. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

volatile int places[8];

static inline __attribute__((always_inline)) void copied(int x) {
    places[x & 7] += x;
}

__attribute__((noinline)) void level(int depth, int argument) {
    if (depth > 0) {
        level(depth - 1, argument + 1);
        places[depth & 7]++;
        return;
    }
    places[0] = argument;
}

__attribute__((noinline)) void last_words(int *nowhere) {
    places[1] = 7;
    *nowhere = 1;
}

int main(int argc, char **argv) {
    (void)argv;
    copied(argc);
    level(5, 40);
    copied(argc + 1);
    for (int i = 0; i < 100; i++) {
        places[2] += i;
    }
    if (argc > 1)
        last_words(NULL);
    return 3;
}
