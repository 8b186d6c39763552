/* The report page's style and program, embedded: a page needs no other file. */
#define TEXT(name, file)                                                                                                                             \
    .global name;                                                                                                                                    \
    .hidden name;                                                                                                                                    \
    name: .incbin file;                                                                                                                              \
    .byte 0

    .section .rodata.mla_html, "a"
    TEXT(mla_html_style, "verify/report_html.css")
    TEXT(mla_html_program, "verify/report_html.js")
    .section .note.GNU-stack, "", @progbits
