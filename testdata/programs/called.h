/*
 * Shared by the C and C++ programs of the corpus: keeps the compiler from changing which calls happen.
 *
 * A compiler may inline a call, clone a function, merge two equal functions, turn a call in tail
 * position into a jump or a recursion into a loop. Then nobody could say how often a function is
 * entered. CALLED and STAY rule that out, so the counts in manifest.json hold at every level.
 */
#ifndef CALLED_H
#define CALLED_H

/* A function that is entered by exactly the calls the source shows. */
#define CALLED __attribute__((noinline, noclone, noipa))

/* Work after a call: keeps the call from becoming a jump, and a recursion from becoming a loop. */
#define STAY() __asm__ volatile("" : : : "memory")

/* Makes a value unknown to the optimiser. */
#define KEEP(value) __asm__ volatile("" : "+r"(value))

#endif
