/*
 * A big switch, compiled to a jump table: one indirect jump with 40 targets inside one function.
 *
 * Calls: main -> decode, 80 times (each case twice); decode -> rare, twice (case 39).
 */
#include "called.h"
#include <stdio.h>

CALLED static unsigned rare(unsigned state) { return state ^ 0x5555; }

/* Every case does something of its own, so that the compiler can't use a table of values instead. */
#define CASE(n) \
    case n: \
        state = (state << (n % 7 + 1)) ^ (state >> (n % 5 + 3)) ^ (n * 2654435761u); \
        STAY(); \
        break;

CALLED static unsigned decode(unsigned opcode, unsigned state)
{
    switch (opcode) {
        CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9)
        CASE(10) CASE(11) CASE(12) CASE(13) CASE(14) CASE(15) CASE(16) CASE(17) CASE(18) CASE(19)
        CASE(20) CASE(21) CASE(22) CASE(23) CASE(24) CASE(25) CASE(26) CASE(27) CASE(28) CASE(29)
        CASE(30) CASE(31) CASE(32) CASE(33) CASE(34) CASE(35) CASE(36) CASE(37) CASE(38)
    case 39:
        state = rare(state);
        STAY();
        break;
    default:
        state = 0;
    }
    return state;
}

int main(void)
{
    unsigned state = 1;
    for (unsigned i = 0; i < 80; i++)
        state = decode(i * 7 % 40, state);
    printf("state = %08x\n", state);
    return 0;
}
