#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

#define INDENT "        "
#define SEQUENCES_SHOWN 6
static const double MUCH_SMALLER = 0.25; /* chi under a contract that was asked for, and is none of the kernel's */

mla_text_style mla_text_style_for(FILE *stream, bool quiet) {
    const char *terminal = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool wanted = !(no_color && *no_color) && terminal && strcmp(terminal, "dumb") != 0;
    return (mla_text_style){.colour = wanted && isatty(fileno(stream)), .quiet = quiet};
}

char *mla_shell_quote(const char *word) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+:,./-";
    if (*word && word[strspn(word, safe)] == '\0')
        return strdup(word);
    char *quoted = malloc(4 * strlen(word) + 3), *to = quoted;
    if (!quoted)
        return NULL;
    *to++ = '\'';
    for (const char *from = word; *from; from++) {
        if (*from == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *from;
    }
    *to++ = '\'';
    *to = '\0';
    return quoted;
}

/* ---- pieces of a line ---------------------------------------------------------------------------------------------------------- */

static void print_grouped(FILE *stream, int64_t n) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            fputc(',', stream);
        fputc(digits[i], stream);
    }
}

static void print_count(FILE *stream, int64_t n, const char *noun) {
    print_grouped(stream, n);
    fprintf(stream, " %s", noun);
}

static void print_place(FILE *stream, const mla_place *place) {
    if (place->sequence < 0)
        fprintf(stream, "padding q %d head %d", place->q, place->head);
    else
        fprintf(stream, "seq %d q %d head %d", place->sequence, place->q, place->head);
    if (place->column >= 0)
        fprintf(stream, " col %d", place->column);
}

static void print_status(FILE *stream, mla_text_style style, mla_verdict_status status) {
    static const char *const colours[] = {[MLA_PASSED] = "\033[32m", [MLA_FAILED] = "\033[31m",  [MLA_SKIPPED] = "\033[33m",
                                          [MLA_ERROR] = "\033[31m",  [MLA_CRASHED] = "\033[31m", [MLA_TIMEOUT] = "\033[31m"};
    const char *name = mla_verdict_name(status);
    fprintf(stream, "%s%s%s%*s", style.colour ? colours[status] : "", name, style.colour ? "\033[0m" : "", (int)(8 - strlen(name)), "");
}

/* ---- parts of a result ------------------------------------------------------------------------------------------------------------ */

static void print_heading(FILE *stream, mla_text_style style, const mla_result *result) {
    const char *line = result->case_line ? result->case_line : "(no memory)";
    print_status(stream, style, result->verdict.status);
    fprintf(stream, "%-88s  %s\n", *line ? line : "(all defaults)", result->kernel);
    if (*result->verdict.reason)
        fprintf(stream, INDENT "%s\n", result->verdict.reason);
}

static void print_chi(FILE *stream, const mla_chi *chi) {
    if (chi->rows > 0)
        fprintf(stream, "chi %.2f (worst row %.2f) | ", mla_chi_gating(chi), chi->worst.chi);
    else if (chi->doubted_rows > 0)
        fprintf(stream, "chi %.2f, which does not gate | ", mla_chi_doubted(chi));
}

/* Rows whose errors' size is reported alone. */
static void print_doubts(FILE *stream, const mla_chi *chi) {
    static const char *const reasons[] = {"the order of fp32 accumulation, which is unknown, matters",
                                          "scores lie closer than they are rounded", "scores repeat", "scores are all but lost"};
    if (chi->doubted_rows == 0)
        return;
    fprintf(stream, INDENT "chi does not gate %" PRId64 " of %" PRId64 " rows", chi->doubted_rows, chi->rows + chi->doubted_rows);
    for (int i = 0; i < 4; i++)
        if (chi->doubts >> i & 1)
            fprintf(stream, "%s %s", chi->doubts & ((1 << i) - 1) ? "," : ":", reasons[i]);
    fputc('\n', stream);
}

/* What passing says little about. */
static void print_looseness(FILE *stream, const mla_result *result) {
    const mla_measure *m = &result->measure;
    const double chi = mla_chi_gating(&m->chi);
    if (m->loose_elements > 0 && m->chi.rows == 0 && m->loose_elements == (m->rows - m->empty_rows) * MLA_HEAD_DIM_V)
        fputs(INDENT "this contract gates nothing here: every bound is above A, and an output of zeros would pass\n", stream);
    else if (m->loose_elements > 0)
        fprintf(stream, INDENT "gated by little: %.2g %% of the elements have a bound above A, so that 0 would pass\n",
                100 * (double)m->loose_elements / (double)m->out.total);
    if (result->contract && chi > 0 && chi < MUCH_SMALLER)
        fprintf(stream, INDENT "errors are %.0f times smaller than this contract explains: a tighter one would notice more\n", 1 / chi);
}

static void print_errors(FILE *stream, const mla_measure *m) {
    fputs(INDENT, stream);
    print_count(stream, m->out.total, "elements, ");
    print_count(stream, m->rows, "rows");
    if (m->empty_rows) {
        fputs(", ", stream);
        print_count(stream, m->empty_rows, "of them empty");
    }
    if (m->hull_rows) {
        fputs(", ", stream);
        print_count(stream, m->hull_rows, "bounded by the hull of V alone");
    }
    fputs(" | ", stream);
    print_chi(stream, &m->chi);
    fprintf(stream, "|e|/B %.2g | ", m->max_err_over_bound);
    if (m->lse_absent)
        fputs("no lse given", stream);
    else
        fprintf(stream, "lse %.1e, %.2g of its bound", m->max_lse_err, m->max_lse_over_bound);
    fprintf(stream, " | cond_ulp %.2g\n", m->max_cond_ulp);
}

static void print_ulps(FILE *stream, const mla_measure *m) {
    const mla_sample *s = &m->worst_ulp;
    fprintf(stream, INDENT "ulp p50 %.2g  p99 %.2g  p99.9 %.2g  max %.5g", mla_measure_ulp_quantile(m, 0.5),
            mla_measure_ulp_quantile(m, 0.99), mla_measure_ulp_quantile(m, 0.999), m->max_ulp);
    if (s->present && m->max_ulp > 0) {
        fputs(" at ", stream);
        print_place(stream, &s->place);
        fprintf(stream, ", where |O|/A = %.1g", s->abs > 0 ? fabs(s->exact) / s->abs : 0.0);
    }
    fputc('\n', stream);
}

static void print_sequence(FILE *stream, const mla_result *result, int32_t sequence) {
    const mla_counts *counts = &result->measure.sequences[sequence];
    if (sequence == result->measure.batch)
        fputs(INDENT "padding rows: ", stream);
    else
        fprintf(stream, INDENT "seq %d (q_len %d, kv_len %d): ", sequence, result->test->q_len[sequence], result->test->kv_len[sequence]);
    print_grouped(stream, mla_counts_wrong(counts));
    fputs(" of ", stream);
    print_count(stream, counts->total, "values wrong\n");
}

/* The first few sequences with wrong values, and how many more there are of either kind. */
static void print_sequences(FILE *stream, const mla_result *result) {
    const mla_measure *m = &result->measure;
    int64_t wrong = 0, right = 0;
    for (int32_t sequence = 0; sequence <= m->batch; sequence++) {
        if (mla_counts_wrong(&m->sequences[sequence]) == 0)
            right += m->sequences[sequence].total > 0;
        else if (wrong++ < SEQUENCES_SHOWN)
            print_sequence(stream, result, sequence);
    }
    if (wrong > SEQUENCES_SHOWN)
        fprintf(stream, INDENT "and %" PRId64 " more sequences with wrong values\n", wrong - SEQUENCES_SHOWN);
    if (wrong > 0 && right > 0)
        fprintf(stream, INDENT "the other %" PRId64 ": none\n", right);
}

static void print_worst(FILE *stream, const char *label, const mla_sample *s, size_t code_bytes) {
    if (!s->present || s->fault == MLA_FAULT_NONE)
        return;
    fprintf(stream, INDENT "%s: ", label);
    print_place(stream, &s->place);
    if (s->fault == MLA_FAULT_UNWRITTEN)
        fprintf(stream, "  never written: still the poison 0x%0*X", (int)(2 * code_bytes), s->code);
    else
        fprintf(stream, "  got 0x%0*X = %.7g", (int)(2 * code_bytes), s->code, s->got);
    fprintf(stream, "  exact %.7g  bound %.2g", s->exact, s->bound);
    if (s->fault == MLA_FAULT_OUTSIDE)
        fprintf(stream, "  |e|/B %.3g", s->err_over_bound);
    fputc('\n', stream);
}

static void print_diagnosis(FILE *stream, const mla_diagnosis *d) {
    if (*d->where)
        fprintf(stream, INDENT "wrong %s\n", d->where);
    if (*d->text)
        fprintf(stream, INDENT "cause: %s\n", d->text);
}

char *mla_repeat_command(const char *kernel, const char *case_line, const char *golden, const char *contract) {
    char *quoted_kernel = mla_shell_quote(kernel), *quoted = mla_shell_quote(golden ? golden : case_line), *command = NULL;
    char *declared = contract ? mla_shell_quote(contract) : strdup("");
    const char *option = contract ? " --contract " : "";
    int length = -1;
    if (quoted_kernel && quoted && declared && golden)
        length = asprintf(&command, "mla-verify check %s %s%s%s", quoted, quoted_kernel, option, declared);
    else if (quoted_kernel && quoted && declared)
        length = asprintf(&command, "mla-verify run --kernel %s --case %s%s%s", quoted_kernel, quoted, option, declared);
    free(quoted_kernel);
    free(quoted);
    free(declared);
    return length < 0 ? NULL : command;
}

static void print_command(FILE *stream, const char *label, const mla_result *result, const char *line, const char *golden) {
    char *command = mla_repeat_command(result->kernel, line, golden, result->contract);
    if (command)
        fprintf(stream, INDENT "%s: %s\n", label, command);
    free(command);
}

/* Did it fail though every value is right? Then its errors are of the wrong size. */
static bool fails_by_size(const mla_result *result) {
    const mla_measure *m = &result->measure;
    return result->measured && mla_counts_wrong(&m->out) + mla_counts_wrong(&m->lse) == 0 && !*result->integrity.guard_touched &&
           !*result->integrity.input_changed;
}

static void print_infer(FILE *stream, const char *kernel) {
    char *quoted = mla_shell_quote(kernel);
    if (quoted)
        fprintf(stream, INDENT "which rounding: mla-verify contract --kernel %s --infer\n", quoted);
    free(quoted);
}

/* What can be done about it. */
static void print_commands(FILE *stream, const mla_result *result) {
    if (!result->given)
        print_command(stream, "repeat", result, result->case_line ? result->case_line : "", result->golden);
    if (result->smallest)
        print_command(stream, "smallest", result, result->smallest, NULL);
    if (result->kept)
        fprintf(stream, INDENT "kept: %s\n", result->kept);
    if (!result->given && !result->golden && fails_by_size(result))
        print_infer(stream, result->kernel);
}

void mla_text_result(FILE *stream, mla_text_style style, const mla_result *result) {
    mla_verdict_status status = result->verdict.status;
    if (style.quiet && !mla_verdict_is_bad(status))
        return;
    print_heading(stream, style, result);
    if (result->measured) {
        print_errors(stream, &result->measure);
        print_ulps(stream, &result->measure);
        print_doubts(stream, &result->measure.chi);
        print_looseness(stream, result);
        print_sequences(stream, result);
        print_worst(stream, "worst", &result->measure.worst, mla_format_bytes(result->test->out));
        print_worst(stream, "worst lse (natural log)", &result->measure.worst_lse, sizeof(float));
        print_diagnosis(stream, &result->diagnosis);
    }
    if (mla_verdict_is_bad(status))
        print_commands(stream, result);
    fflush(stream);
}

void mla_text_summary(FILE *stream, mla_text_style style, const mla_summary *s) {
    const bool bad = mla_summary_bad(s) > 0, none = !bad && s->passed == 0;
    print_status(stream, style, bad ? MLA_FAILED : none ? MLA_SKIPPED : MLA_PASSED);
    fprintf(stream, "%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped, %" PRId64 " error", s->passed, s->failed, s->skipped,
            s->error);
    if (s->crashed + s->timeout > 0)
        fprintf(stream, ", %" PRId64 " crashed, %" PRId64 " timeout", s->crashed, s->timeout);
    const bool measured = s->passed + s->failed > 0;
    fputs(none ? " | nothing was run: this is not a pass" : measured ? " | worst: " : "", stream);
    if (s->max_chi > 0)
        fprintf(stream, "chi %.2f  ", s->max_chi);
    if (measured && !none)
        fprintf(stream, "|e|/B %.2g  ulp %.5g  cond_ulp %.2g  lse %.2g of its bound", s->max_err_over_bound, s->max_ulp, s->max_cond_ulp,
                s->max_lse_over_bound);
    fputc('\n', stream);
    fflush(stream);
}
