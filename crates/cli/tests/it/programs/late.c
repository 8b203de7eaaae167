/* Calls late() when 5,000,000 instructions and some have executed in main; and often after that. */
#include <stdio.h>

volatile unsigned total;

__attribute__((noinline)) void late(unsigned number) {
    total += number;
}

int main(void) {
    unsigned left = 1250000;
    __asm__ volatile("1: imul $3, %1, %1\n\tadd $7, %1\n\tdec %0\n\tjnz 1b"
                     : "+r"(left), "+r"(*(unsigned *)&total));
    for (unsigned number = 0; number < 200000; number++)
        late(number);
    printf("%u\n", total);
    return 0;
}
