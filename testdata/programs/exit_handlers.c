/*
 * Ends by exit inside nested calls; handlers registered by atexit run on top of them.
 *
 * Calls: main -> outer -> inner, once each -> exit(3) -> ... -> on_exit_last, then on_exit_first,
 * once each; note 2.
 */
#include "called.h"
#include <stdio.h>
#include <stdlib.h>

CALLED static void note(const char *text)
{
    puts(text);
    STAY();
}

CALLED static void on_exit_first(void)
{
    note("first");
    STAY();
}

CALLED static void on_exit_last(void)
{
    note("last");
    STAY();
}

CALLED static void inner(void)
{
    exit(3);
}

CALLED static void outer(void)
{
    inner();
    STAY();
}

int main(void)
{
    atexit(on_exit_first);
    atexit(on_exit_last);
    outer();
    return 0;
}
