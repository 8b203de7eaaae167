/*
 * Far transfers inside user mode: a far return and an interrupt return, to the same code segment.
 *
 * Calls: _start -> far_return, 2 times, which goes on at its own label by `lretq`; _start ->
 * interrupt_return, 2 times, which goes on at its own label by `iretq`; _start -> after, once.
 * Prints "ok", status 0.
 */
        .section .rodata
message: .ascii "ok\n"

        .text
        .globl  _start
        .type   _start, @function
_start:
        xor     %ebp, %ebp
        call    far_return
        call    far_return
        call    interrupt_return
        call    interrupt_return
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

        .type   far_return, @function
far_return:
        mov     %cs, %eax
        push    %rax
        lea     1f(%rip), %rax
        push    %rax
        lretq
        ud2
1:      ret
        .size   far_return, . - far_return

        .type   interrupt_return, @function
interrupt_return:
        mov     %rsp, %rdx
        mov     %ss, %eax
        push    %rax
        push    %rdx
        pushfq
        mov     %cs, %eax
        push    %rax
        lea     1f(%rip), %rax
        push    %rax
        iretq
        ud2
1:      ret
        .size   interrupt_return, . - interrupt_return

        .type   after, @function
after:
        nop
        ret
        .size   after, . - after

        .section .note.GNU-stack, "", @progbits
