/*
 * A second thread.
 *
 * Calls in the first thread: main -> before, once; main -> join, once -> pthread_join. In the second:
 * in_thread, once -> thread_work, 3 times.
 */
#include "called.h"
#include <pthread.h>
#include <stdio.h>

CALLED static long before(void) { return 5; }
CALLED static long thread_work(long n) { return n * 2; }

CALLED static void *in_thread(void *argument)
{
    long value = (long)argument;
    for (int i = 0; i < 3; i++)
        value = thread_work(value);
    return (void *)value;
}

CALLED static long join(pthread_t thread)
{
    void *result = NULL;
    pthread_join(thread, &result);
    return (long)result;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, (void *)before()) != 0)
        return 2;
    printf("result = %ld\n", join(thread));
    return 0;
}
