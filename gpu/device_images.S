/* The device code objects, embedded: one binary works with either vendor's driver, or neither. An absent image's symbols stay undefined (weak in C). */
#define IMAGE(name, file)                                                                                                                            \
    .section .rodata.mla_image_##name, "a";                                                                                                          \
    .balign 4096;                                                                                                                                    \
    .global mla_image_##name;                                                                                                                        \
    .hidden mla_image_##name;                                                                                                                        \
    mla_image_##name: .incbin file;                                                                                                                  \
    .global mla_image_##name##_end;                                                                                                                  \
    .hidden mla_image_##name##_end;                                                                                                                  \
    mla_image_##name##_end: .byte 0

#ifdef MLA_IMAGE_nvidia
IMAGE(nvidia, "nvidia.fatbin")
#endif
#ifdef MLA_IMAGE_hopper
IMAGE(hopper, "hopper.fatbin")
#endif
#ifdef MLA_IMAGE_hopper16
IMAGE(hopper16, "hopper16.fatbin")
#endif
#ifdef MLA_IMAGE_gfx90a
IMAGE(gfx90a, "gfx90a.co")
IMAGE(gfx90a_tall, "gfx90a_tall.co")
#endif
#ifdef MLA_IMAGE_gfx942
IMAGE(gfx942, "gfx942.co")
IMAGE(gfx942_tall, "gfx942_tall.co")
#endif
#ifdef MLA_IMAGE_gfx950
IMAGE(gfx950, "gfx950.co")
IMAGE(gfx950_tall, "gfx950_tall.co")
#endif
    .section .note.GNU-stack, "", @progbits
