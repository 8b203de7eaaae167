/* Static probes as sys/sdt.h makes them. */
#define PROBE(name)                                                                                   \
    __asm__ volatile("990: nop\n"                                                                     \
                     ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                     \
                     ".balign 4\n"                                                                    \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                               \
                     "991: .asciz \"stapsdt\"\n"                                                      \
                     "992: .balign 4\n"                                                               \
                     "993: .8byte 990b, _.stapsdt.base, 0\n"                                          \
                     ".asciz \"app\"\n.asciz \"" #name "\"\n.asciz \"\"\n"                            \
                     "994: .balign 4\n"                                                               \
                     ".popsection\n"                                                                  \
                     ".ifndef _.stapsdt.base\n"                                                       \
                     ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"           \
                     ".weak _.stapsdt.base\n"                                                         \
                     ".hidden _.stapsdt.base\n"                                                       \
                     "_.stapsdt.base: .space 1\n"                                                     \
                     ".size _.stapsdt.base, 1\n"                                                      \
                     ".popsection\n"                                                                  \
                     ".endif\n")

int main(int argc, char **argv) {
    (void)argv;
    PROBE(once);
    PROBE(twice);
    PROBE(twice);
    return argc - 1;
}
