/*
 * Returns that match no call: `push` and `ret` used as a jump, and a return address changed in place.
 *
 * Calls: _start -> pushes, once, which pushes the address of `landed` and returns into it; landed
 * returns to _start. _start -> skips, once, which adds 2 to its return address and so returns behind
 * the instruction that follows its call. _start -> after, once. Prints "ok", status 0.
 */
        .section .rodata
message: .ascii "ok\n"

        .text
        .globl  _start
        .type   _start, @function
_start:
        xor     %ebp, %ebp
        call    pushes
        call    skips
        ud2
        call    after
        mov     $1, %eax
        mov     $1, %edi
        lea     message(%rip), %rsi
        mov     $3, %edx
        syscall
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        hlt
        .size   _start, . - _start

        .type   pushes, @function
pushes:
        lea     landed(%rip), %rax
        push    %rax
        ret
        .size   pushes, . - pushes

        .type   landed, @function
landed:
        nop
        ret
        .size   landed, . - landed

        .type   skips, @function
skips:
        addq    $2, (%rsp)
        ret
        .size   skips, . - skips

        .type   after, @function
after:
        nop
        ret
        .size   after, . - after

        .section .note.GNU-stack, "", @progbits
