/*
 * Tail calls: a chain of jumps, two functions that jump to each other through a pointer, and a
 * conditional one. They are jumps at -O2 and calls at -O0, so the parents differ and the counts don't.
 *
 * Calls: main -> chain_first -> chain_second -> chain_third -> chain_last, 2 times;
 * main -> ping(9) -> pong(8) -> ping(7) ... -> pong(0): ping 5, pong 5;
 * main -> choose, 4 times, which goes on to low 2 times and high 2 times.
 * At -O2 the parent of every one of them is main.
 */
#include "called.h"
#include <stdio.h>

CALLED static long chain_last(long n) { return n * 3; }
CALLED static long chain_third(long n) { return chain_last(n + 3); }
CALLED static long chain_second(long n) { return chain_third(n + 2); }
CALLED static long chain_first(long n) { return chain_second(n + 1); }

typedef long player(long);
static long ping(long n);
static long pong(long n);
static player *volatile to_ping = ping;
static player *volatile to_pong = pong;

CALLED static long ping(long n) { return n == 0 ? 1 : to_pong(n - 1); }
CALLED static long pong(long n) { return n == 0 ? 2 : to_ping(n - 1); }

CALLED static long low(long n) { return n + 100; }
CALLED static long high(long n) { return n + 1000; }
CALLED static long choose(long n) { return n < 2 ? low(n) : high(n); }

int main(void)
{
    long sum = chain_first(1);
    sum += chain_first(10);
    long last = ping(9);
    long chosen = 0;
    for (long i = 0; i < 4; i++)
        chosen += choose(i);
    printf("%ld %ld %ld\n", sum, last, chosen);
    return 0;
}
