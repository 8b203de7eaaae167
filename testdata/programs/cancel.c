/*
 * Ends by cancelling its own thread, the only one.
 *
 * Calls: main -> outer -> inner, once each, which cancels itself; the unwinding calls clean_inner and
 * clean_outer, in this order, and at_end is called at exit.
 */
#include "called.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

CALLED static void clean_inner(void *name) { puts(name); }
CALLED static void clean_outer(void *name) { puts(name); }
CALLED static void at_end(void) { puts("end"); }

CALLED static void inner(void)
{
    pthread_cleanup_push(clean_inner, "inner");
    pthread_cancel(pthread_self());
    pthread_testcancel();
    pthread_cleanup_pop(0);
    STAY();
}

CALLED static void outer(void)
{
    pthread_cleanup_push(clean_outer, "outer");
    inner();
    pthread_cleanup_pop(0);
    STAY();
}

int main(void)
{
    if (atexit(at_end) != 0)
        return 2;
    outer();
    return 1;
}
