/*
 * C++ exceptions: thrown through frames with destructors, rethrown, caught in a loop.
 *
 * Calls: main -> plain, once -> pass_through, once -> thrower(7), once: ~Guard runs 2 times on the
 * way (one in pass_through, one in thrower), plain catches.
 * main -> again, once -> rethrow, once -> thrower(8), once (~Guard once); rethrow catches and throws
 * again, again catches.
 * main -> loop, once -> sometimes(i), 6 times; the odd ones (3) throw and are caught in the loop.
 * In all: thrower 2, ~Guard 3, caught 5 (once in each catch but that of rethrow).
 */
#include "called.h"
#include <cstdio>
#include <exception>

static int guards;
static int caught_sum;

struct Problem : std::exception {
    int code;
    explicit Problem(int c) : code(c) {}
    const char *what() const noexcept override { return "problem"; }
};

struct Guard {
    CALLED ~Guard() { guards++; }
};

CALLED static void caught(int code) { caught_sum += code; }

CALLED static void thrower(int code)
{
    Guard guard;
    throw Problem(code);
}

CALLED static void pass_through(int code)
{
    Guard guard;
    thrower(code);
    STAY();
}

CALLED static void plain()
{
    try {
        pass_through(7);
    } catch (const std::exception &) {
        caught(7);
    }
    STAY();
}

CALLED static void rethrow()
{
    try {
        thrower(8);
    } catch (Problem &problem) {
        problem.code += 100;
        throw;
    }
    STAY();
}

CALLED static void again()
{
    try {
        rethrow();
    } catch (const Problem &problem) {
        caught(problem.code);
    }
    STAY();
}

CALLED static int sometimes(int i)
{
    if (i % 2)
        throw i;
    return i;
}

CALLED static int loop()
{
    int sum = 0;
    for (int i = 0; i < 6; i++) {
        try {
            sum += sometimes(i);
        } catch (int thrown) {
            caught(thrown);
        }
    }
    return sum;
}

int main()
{
    plain();
    again();
    int sum = loop();
    std::printf("guards %d, caught %d, sum %d\n", guards, caught_sum, sum);
    return 0;
}
