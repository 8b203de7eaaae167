/* PLT calls, a static helper, a cold part, an indirect call and a weak alias. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((cold, noinline)) static void complain(const char *what, int value) {
  fprintf(stderr, "%s: %d\n", what, value);
}

__attribute__((noinline)) int triple_or_complain(int value) {
  if (value < 0) {
    complain("negative", value);
    complain("still negative", value + 1);
    return -value;
  }
  if (value > 1000) {
    complain("large", value);
    abort();
  }
  return value * 3;
}

__attribute__((noinline)) static int compare(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) double rounded(double value) { return floor(sqrt(value)); }
__attribute__((weak, alias("rounded"))) double _rounded_weakly(double value);
double __rounded_strongly(double value) __attribute__((alias("rounded")));

int main(int argc, char **argv) {
  int numbers[64];
  for (int i = 0; i < 64; i++)
    numbers[i] = triple_or_complain(i * argc % 17 + (int)strlen(argv[0]) % 3);
  qsort(numbers, 64, sizeof numbers[0], compare);
  printf("%d %f\n", numbers[0], rounded(numbers[63]));
  puts("done");
  return 0;
}
