/*
 * Uses its arguments, its standard input and its exit status.
 *
 * Calls: main -> is_letter, once for each byte of the input (28), main -> word_end, once for each
 * word (5). Prints the arguments and exits with the number of words.
 */
#include "called.h"
#include <stdio.h>

static int words;

CALLED static int is_letter(int byte) { return byte > ' '; }
CALLED static void word_end(void) { words++; }

int main(int argc, char **argv)
{
    int inside = 0;
    int byte;
    while ((byte = getchar()) != EOF) {
        int letter = is_letter(byte);
        if (inside && !letter)
            word_end();
        inside = letter;
    }
    for (int i = 1; i < argc; i++)
        printf("[%s]", argv[i]);
    printf(" %d words\n", words);
    return words;
}
