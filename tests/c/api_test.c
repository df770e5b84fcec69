/* The functions of zero_c.h and the calls that they refuse. Compiled as C11 with -Ofast, as C++17,
 * and with another compiler where there is one. */

#include "api_model.h"
#include "api_refusals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Three steps, a checkpoint after the first of them, and the values that the engine reports. */
static int train(zero_communicator* communicator, void* user) {
    Run* const run = (Run*)user;
    int const rank = zero_rank(communicator);
    EXPECT(zero_world(communicator) == RANKS);
    static float floats[RANKS][ELEMENTS];
    uint16_t halves[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; ++i) {
        floats[rank][i] = initial_value(i);
        put(halves, run->dtype == ZERO_FLOAT ? ZERO_BFLOAT16 : run->dtype, i, initial_value(i));
    }
    zero_parameter list[2];
    fill_model(list, run->dtype == ZERO_FLOAT ? floats[rank] : (float*)(void*)halves);
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.stage = run->stage;
    options.dtype = run->dtype;
    options.optimizer = run->optimizer;
    options.clip_norm = 0.5F;
    options.initial_loss_scale = 64.0F;
    options.schedule = ZERO_EVERY_MICRO_STEP;
    options.count_zero_gradients = 1;
    options.group_norms = 1;
    zero_engine* engine = NULL;
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    zero_report report;
    for (int step = 0; step < 3; ++step) {
        int const status = take_step(engine, run, rank, step);
        EXPECT(status == 0);
        EXPECT(zero_last_report(engine, &report) == ZERO_OK);
        EXPECT(report.step_count == (uint64_t)step + 1 && !report.is_skipped && report.has_norm);
        EXPECT(report.gradient_norm > 0.5 && report.clip_coefficient < 1.0F);
        double norm = 0.0;
        EXPECT(report.zero_gradients == zeros_of(step));
        EXPECT(zero_last_group_norms(engine, &norm, 1) == ZERO_OK && norm == report.gradient_norm);
        if (step == 0 && run->directory != NULL) {
            EXPECT(zero_save(engine, run->directory, 7) == ZERO_OK);
        }
    }
    float whole[ELEMENTS + 5];
    zero_memory memory;
    EXPECT(zero_get_parameter(engine, 0, whole, ELEMENTS) == ZERO_OK);
    EXPECT(zero_get_parameter(engine, 1, whole + ELEMENTS, 5) == ZERO_OK);
    EXPECT(zero_memory_of(engine, &memory) == ZERO_OK);
    if (rank == 0) {
        memcpy(run->weights, whole, sizeof whole);
        run->memory = memory;
        zero_memory plan;
        EXPECT(zero_plan(list, 2, &options, RANKS, &plan) == ZERO_OK);
        EXPECT(plan.parameters == run->memory.parameters && plan.gradients == run->memory.gradients
               && plan.master_weights == run->memory.master_weights
               && plan.optimizer_state == run->memory.optimizer_state
               && plan.gradient_leases == run->memory.gradient_leases
               && plan.parameter_leases == run->memory.parameter_leases);
    }
    if (run->directory != NULL) { /* back to the first step, and forward again */
        uint64_t steps = 0;
        EXPECT(zero_load(engine, run->directory, NULL) == ZERO_OK);
        EXPECT(zero_step_count(engine, &steps) == ZERO_OK && steps == 1);
        for (int step = 1; step < 3; ++step) {
            EXPECT(take_step(engine, run, rank, step) == 0);
        }
        float again[ELEMENTS];
        EXPECT(zero_get_parameter(engine, 0, again, ELEMENTS) == ZERO_OK);
        EXPECT(memcmp(again, whole, sizeof again) == 0);
    }
    float five[5] = {1.0F, 2.0F, 3.0F, 4.0F, (float)rank};
    EXPECT(zero_set_parameter(engine, 1, five, 5) == ZERO_OK);
    EXPECT(zero_get_parameter(engine, 1, five, 5) == ZERO_OK);
    EXPECT(five[0] == 1.0F && five[4] == 0.0F); /* of rank 0 */
    zero_destroy(engine);
    return 0;
}

static int refuse_update(zero_slice const* slice, void* user) {
    (void)slice, (void)user;
    return 42;
}

/* An update by averaged gradients. It records the learning rate of the group. */
static int see(zero_slice const* slice, void* user) {
    float* const rates = (float*)user;
    for (size_t i = 0; i < slice->elements; ++i) {
        slice->weights[i] -= (float)slice->learning_rate * slice->gradients[i];
    }
    rates[slice->parameter] = (float)slice->learning_rate;
    return slice->states[1] == NULL ? 1 : 0;
}

static int update(zero_communicator* communicator, void* user) {
    zero_parameter list[2];
    fill_model(list, NULL);
    list[0].elements = 2;
    list[1].group = 1;
    zero_options options;
    zero_options_init(&options, sizeof options);
    zero_group groups[2] = {options.group, options.group};
    groups[1].learning_rate_factor = 0.5;
    options.groups = groups;
    options.group_count = 2;
    zero_engine* engine = NULL;
    float rates[2] = {0.0F, 0.0F}, values[5];
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
    for (size_t unit = 2; unit-- > 0;) {
        float* weights[2];
        float* gradients[2];
        EXPECT(zero_open(engine, unit, weights, gradients) == ZERO_OK);
        gradients[unit][1] += (float)(1 + zero_rank(communicator)); /* mean 2 */
        EXPECT(zero_close(engine, unit) == ZERO_OK);
    }
    EXPECT(zero_step_with(engine, 0.25, see, rates) == ZERO_OK);
    EXPECT(rates[0] == 0.25F || rates[0] == 0.0F); /* rate of the slices that this rank owns */
    EXPECT(rates[1] == 0.125F || rates[1] == 0.0F);
    EXPECT(zero_get_parameter(engine, 1, values, 5) == ZERO_OK);
    EXPECT(values[0] == 0.0F && fabsf(values[1] + 0.25F) < 1e-6F);
    EXPECT(zero_get_parameter(engine, 0, values, 2) == ZERO_OK);
    EXPECT(values[0] == 0.0F && fabsf(values[1] + 0.5F) < 1e-6F);
    (void)user;
    zero_destroy(engine);
    return 0;
}

/* A group that is left out of clipping moves by its whole gradient, and its gradient shortens that
 * of no other group. */
static int unclipped(zero_communicator* communicator, void* user) {
    zero_parameter list[2];
    fill_model(list, NULL);
    list[0].elements = 2;
    list[1].group = 1;
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.optimizer = ZERO_SGD;
    options.group.momentum = 0.0;
    options.group.weight_decay = 0.0;
    zero_group groups[2] = {options.group, options.group};
    options.groups = groups;
    options.group_count = 2;
    zero_engine* engine = NULL;
    groups[1].is_unclipped = 1;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "is_unclipped = 1 in 1 of 2 parameter groups would be ignored, because "
                   "options.clip_norm is off");
    options.clip_norm = 1.0F;
    groups[1].reserved[3] = 1;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "options.groups[1] has reserved members that are not 0");
    groups[1].reserved[3] = 0;
    zero_options single = options; /* the group of all parameters cannot be left out */
    single.groups = NULL;
    single.group_count = 0;
    single.group.is_unclipped = 1;
    list[1].group = 0;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &single, &engine), ZERO_INVALID_ARGUMENT,
                   "would clip nothing");
    list[1].group = 1;
    for (int is_unclipped = 0; is_unclipped < 2; ++is_unclipped) {
        groups[1].is_unclipped = is_unclipped;
        EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
        EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
        for (size_t unit = 2; unit-- > 0;) {
            float* weights[2];
            float* gradients[2];
            EXPECT(zero_open(engine, unit, weights, gradients) == ZERO_OK);
            gradients[unit][0] += unit == 0 ? 3.0F : 4.0F; /* norms 3 and 4, together 5 */
            EXPECT(zero_close(engine, unit) == ZERO_OK);
        }
        EXPECT(zero_step(engine, 1.0) == ZERO_OK);
        zero_report report;
        EXPECT(zero_last_report(engine, &report) == ZERO_OK && report.gradient_norm == 5.0);
        float first[2], second[5];
        EXPECT(zero_get_parameter(engine, 0, first, 2) == ZERO_OK);
        EXPECT(zero_get_parameter(engine, 1, second, 5) == ZERO_OK);
        EXPECT(fabsf(first[0] + (is_unclipped ? 1.0F : 0.6F)) < 1e-5F);
        EXPECT(fabsf(second[0] + (is_unclipped ? 4.0F : 0.8F)) < 1e-5F);
        zero_destroy(engine);
        engine = NULL;
    }
    (void)user;
    return 0;
}

/* A step whose norm is above a limit is skipped, and the report says that it is not an overflow. */
static int skip_norm(zero_communicator* communicator, void* user) {
    float const sizes[4] = {1.0F, 2.0F, 90.0F, 3.0F};
    int const skipped[4] = {0, 0, 2, 0};
    zero_parameter list[2];
    fill_model(list, NULL);
    zero_options options;
    zero_options_init(&options, sizeof options);
    zero_engine* engine = NULL;
    (void)user;
    EXPECT(options.skip_norm == 0.0F && options.skip_norm_window == 128);
    options.skip_norm = -1.0F;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "options.skip_norm is -1");
    options.skip_norm = 50.0F;
    options.skip_norm_window = 2;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "options.skip_norm_window is 2, which would be ignored without "
                   "options.skip_norm_factor");
    options.skip_norm_factor = 3.0F;
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    for (int step = 0; step < 4; ++step) {
        EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
        for (size_t unit = 2; unit-- > 0;) {
            float* weights[2];
            float* gradients[2];
            EXPECT(zero_open(engine, unit, weights, gradients) == ZERO_OK);
            gradients[unit][0] += unit == 0 ? sizes[step] : 0.0F;
            EXPECT(zero_close(engine, unit) == ZERO_OK);
        }
        EXPECT(zero_step(engine, 0.25) == ZERO_OK);
        zero_report report;
        EXPECT(zero_last_report(engine, &report) == ZERO_OK);
        EXPECT(report.is_skipped == skipped[step] && report.gradient_norm == sizes[step]);
    }
    uint64_t steps = 0;
    EXPECT(zero_step_count(engine, &steps) == ZERO_OK && steps == 3);
    zero_destroy(engine);
    return 0;
}

/* A parameter that no rank uses stays, although its memory was asked for; one that a rank uses does
 * not. */
static int leave_unused(zero_communicator* communicator, void* user) {
    zero_parameter list[2];
    fill_model(list, NULL);
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.leave_unused = 1;
    options.require_gradients = 1;
    zero_engine* engine = NULL;
    (void)user;
    EXPECT_REFUSED(zero_create(communicator, list, 2, &options, &engine), ZERO_INVALID_ARGUMENT,
                   "options.leave_unused conflicts with options.require_gradients");
    options.require_gradients = 0;
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    float values[3][5];
    for (int step = 0; step < 3; ++step) { /* unit 1 has a gradient on rank 0, in the first step */
        EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
        for (size_t unit = 2; unit-- > 0;) {
            float* weights[2];
            float* gradients[2];
            EXPECT(zero_open(engine, unit, weights, gradients) == ZERO_OK);
            if (unit == 0 || (step == 0 && zero_rank(communicator) == 0)) {
                gradients[unit][0] += 1.0F;
            } else {
                EXPECT(zero_note_unused(engine, unit, unit) == ZERO_OK);
            }
            EXPECT(zero_close(engine, unit) == ZERO_OK);
        }
        EXPECT_REFUSED(zero_note_unused(engine, 0, 1), ZERO_INVALID_ARGUMENT, "number 1");
        EXPECT(zero_step(engine, 0.25) == ZERO_OK);
        EXPECT_REFUSED(zero_note_unused(engine, 0, 0), ZERO_OUT_OF_ORDER, "zero_note_unused()");
        EXPECT(zero_get_parameter(engine, 1, values[step], 5) == ZERO_OK);
    }
    EXPECT(values[0][0] < -0.2F);
    EXPECT(memcmp(values[0], values[1], sizeof values[0]) == 0);
    EXPECT(memcmp(values[0], values[2], sizeof values[0]) == 0);
    zero_destroy(engine);
    return 0;
}

/* An update that fails breaks the engine. */
static int broken(zero_communicator* communicator, void* user) {
    zero_parameter list[2];
    fill_model(list, NULL);
    zero_options options;
    zero_options_init(&options, sizeof options);
    zero_engine* engine = NULL;
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
    for (size_t unit = 2; unit-- > 0;) {
        EXPECT(zero_gradients(engine, unit, 0) == ZERO_OK);
        EXPECT(zero_gradient(engine, unit, unit) != NULL);
        EXPECT(zero_gradients_ready(engine, unit) == ZERO_OK);
    }
    zero_status const status = zero_step_with(engine, 0.1, refuse_update, user);
    EXPECT(status == ZERO_CALLBACK || status == ZERO_ABORTED); /* another rank may be the first */
    EXPECT(strstr(zero_last_error(), "returned 42") != NULL);
    EXPECT(zero_is_broken(engine));
    zero_status const later = zero_begin_step(engine, 1);
    EXPECT(later == ZERO_BROKEN || later == ZERO_ABORTED);
    EXPECT(zero_release(engine, 0)
           == status); /* reports the cause, although the call is also out of order */
    EXPECT(strstr(zero_last_error(), "returned 42") != NULL);
    zero_destroy(engine);
    return 0;
}

/* Gradients that lie beside the block of the program are reduced in place, once in a step. */
static int in_block(zero_communicator* communicator, void* user) {
    static float parameters[RANKS][16], gradients[RANKS][16];
    int const rank = zero_rank(communicator);
    zero_parameter list[1];
    memset(list, 0, sizeof list);
    list[0].elements = 16;
    list[0].data = parameters[rank];
    list[0].gradient = gradients[rank];
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.stage = 1;
    options.block = parameters[rank];
    options.block_elements = 16;
    zero_engine* engine = NULL;
    (void)user;
    EXPECT(zero_create(communicator, list, 1, &options, &engine) == ZERO_OK);
    EXPECT_REFUSED(zero_begin_step(engine, 2), ZERO_INVALID_ARGUMENT, "ZERO_EVERY_MICRO_STEP");
    EXPECT(zero_begin_step(engine, 1) == ZERO_OK); /* nothing had begun */
    gradients[rank][3] = 2.0F;
    EXPECT(zero_gradients_ready(engine, 0) == ZERO_OK);
    EXPECT(zero_step(engine, 0.5) == ZERO_OK);
    uint64_t steps = 0;
    EXPECT(zero_step_count(engine, &steps) == ZERO_OK && steps == 1);
    EXPECT(fabsf(parameters[rank][3] + 0.5F) < 1e-3F);
    zero_destroy(engine);
    /* Reported before the backward pass: in stage 3 seen at once. */
    options.stage = 3;
    options.block = NULL;
    options.block_elements = 0;
    EXPECT(zero_create(communicator, list, 1, &options, &engine) == ZERO_OK);
    EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
    EXPECT_REFUSED(zero_gradients_ready(engine, 0), ZERO_OUT_OF_ORDER,
                   "zero_gradients_ready() of unit 0 without zero_acquire() since");
    EXPECT(zero_cancel_step(engine) == ZERO_OK);
    zero_destroy(engine);
    return 0;
}

/* Rank 1 returns early, and no rank looks at a status. */
static int return_early(zero_communicator* communicator, void* user) {
    float value = 1.0F;
    (void)user;
    if (zero_rank(communicator) != 1) {
        (void)zero_sum(communicator, &value, 1);
    }
    return 0;
}

/* A step is skipped, so that the number of steps is not the position in the data. */
static int save_position(zero_communicator* communicator, void* user) {
    char const* const directory = (char const*)user;
    zero_parameter list[2];
    fill_model(list, NULL);
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.clip_norm = 1.0F;
    zero_engine* engine = NULL;
    EXPECT(zero_create(communicator, list, 2, &options, &engine) == ZERO_OK);
    for (int step = 0; step < 3; ++step) {
        EXPECT(zero_begin_step(engine, 1) == ZERO_OK);
        for (size_t unit = 2; unit-- > 0;) {
            float* weights[2];
            float* gradients[2];
            EXPECT(zero_open(engine, unit, weights, gradients) == ZERO_OK);
            gradients[unit][0] = step == 1 ? INFINITY : 1.0F;
            EXPECT(zero_close(engine, unit) == ZERO_OK);
        }
        EXPECT(zero_step(engine, 0.1) == ZERO_OK);
    }
    EXPECT(zero_save(engine, directory, 3) == ZERO_OK);
    uint64_t position = 0, steps = 0;
    EXPECT(zero_load(engine, directory, &position) == ZERO_OK && position == 3);
    EXPECT(zero_step_count(engine, &steps) == ZERO_OK && steps == 2);
    EXPECT(zero_load(engine, directory, NULL) == ZERO_OK);
    zero_destroy(engine);
    return 0;
}

static void check_checkpoints(char const* directory) {
    char own[1024];
    int has = 7;
    snprintf(own, sizeof own, "%s/nothing", directory);
    expect(__LINE__, zero_has_checkpoint(own, &has) == ZERO_OK && has == 0);
    snprintf(own, sizeof own, "%s/position", directory);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, save_position, own) == ZERO_OK);
    expect(__LINE__, zero_has_checkpoint(own, &has) == ZERO_OK && has == 1);
    expect(__LINE__, zero_has_checkpoint("", &has) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_has_checkpoint(own, NULL) == ZERO_INVALID_ARGUMENT);
}

/* Rank 1 gives up; the others wait for it and get its cause. */
static int leave(zero_communicator* communicator, void* user) {
    (void)user;
    if (zero_rank(communicator) == 1) {
        return zero_sum(communicator, NULL, 4); /* refused */
    }
    float value = 1.0F;
    zero_status const status = zero_sum(communicator, &value, 1);
    return status == ZERO_ABORTED && strstr(zero_last_error(), "values of zero_sum()") != NULL
               ? (int)status
               : 999;
}

static int return_number(zero_communicator* communicator, void* user) {
    return zero_rank(communicator) == 2 ? *(int*)user : 0;
}

static int add(zero_communicator* communicator, void* user) {
    float values[7];
    for (int i = 0; i < 7; ++i) {
        values[i] = (float)(zero_rank(communicator) + i);
    }
    EXPECT(zero_sum(communicator, values, 7) == ZERO_OK);
    for (int i = 0; i < 7; ++i) {
        EXPECT(values[i] == (float)(RANKS * i + 3));
    }
    EXPECT(zero_sum(communicator, NULL, 0) == ZERO_OK);
    (void)user;
    return 0;
}

static int seen = 0;
static zero_status last_seen = ZERO_OK;

static void on_failure(zero_status status, char const* message) {
    ++seen;
    last_seen = status;
    expect(__LINE__, strcmp(message, zero_last_error()) == 0);
}

/* One of the processes of mpirun: what threads do, with the same bits in every stage. At the end
 * rank 1 fails, and the others learn why. */
static int in_processes(zero_communicator* communicator, void* user) {
    static Run runs[4];
    for (int stage = 0; stage < 4; ++stage) {
        runs[stage].stage = stage;
        int const status = train(communicator, &runs[stage]);
        EXPECT(status == 0);
        EXPECT(memcmp(runs[stage].weights, user, sizeof runs[stage].weights) == 0
               || zero_rank(communicator) != 0);
    }
    int const status = add(communicator, NULL);
    EXPECT(status == 0);
    return leave(communicator, NULL);
}

static int check_processes(void) {
    static Run threads;
    threads.stage = 2;
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, train, &threads) == ZERO_OK);
    expect(__LINE__, zero_run_mpi(-1.0, in_processes, NULL) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_run_mpi(0.0, NULL, NULL) == ZERO_INVALID_ARGUMENT);
    zero_status const status = zero_run_mpi(60.0, in_processes, threads.weights);
    expect(__LINE__, status == ZERO_ABORTED || status == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, strstr(zero_last_error(), "values of zero_sum()") != NULL);
    /* The library began MPI and ended it. */
    expect(__LINE__, zero_run_mpi(60.0, in_processes, NULL) == ZERO_INVALID_ARGUMENT
                         && strstr(zero_last_error(), "MPI has ended") != NULL);
    return failures == 0 ? 0 : 1;
}

/* The handler sees each failure once, before the call returns. A removed handler sees none. */
static void check_handler(void) {
    zero_set_error_handler(on_failure);
    expect(__LINE__, zero_begin_step(NULL, 1) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, seen == 1 && last_seen == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_weight(NULL, 0, 0) == NULL && seen == 2);
    int number = -7; /* returned by each rank: one failure of the caller, none of a rank */
    expect(__LINE__, zero_run_ranks(RANKS, 0.0, return_number, &number) == ZERO_CALLBACK);
    expect(__LINE__, seen == 3 && last_seen == ZERO_CALLBACK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, add, NULL) == ZERO_OK && seen == 3);
    zero_set_error_handler(NULL);
    expect(__LINE__, zero_begin_step(NULL, 1) == ZERO_INVALID_ARGUMENT && seen == 3);
}

int main(int count, char** arguments) {
    if (count > 1 && strcmp(arguments[1], "--processes") == 0) {
        return check_processes();
    }
    char const* const directory = count > 1 ? arguments[1] : NULL;
    zero_dtype const dtypes[] = {ZERO_FLOAT, ZERO_BFLOAT16, ZERO_FLOAT16};
    zero_optimizer const optimizers[] = {ZERO_ADAMW, ZERO_SGD};
    for (int d = 0; d < 3; ++d) {
        for (int o = 0; o < 2; ++o) {
            static Run runs[4];
            for (int stage = 0; stage < 4; ++stage) {
                memset(&runs[stage], 0, sizeof runs[stage]);
                runs[stage].stage = stage;
                runs[stage].dtype = dtypes[d];
                runs[stage].optimizer = optimizers[o];
                runs[stage].directory = o == 0 ? directory : NULL;
                expect(__LINE__, zero_run_ranks(RANKS, 60.0, train, &runs[stage]) == ZERO_OK);
                expect(__LINE__,
                       memcmp(runs[stage].weights, runs[0].weights, sizeof runs[0].weights) == 0);
            }
            expect(__LINE__, runs[0].weights[1] != initial_value(1)); /* the run has trained */
            expect(__LINE__, runs[1].memory.optimizer_state < runs[0].memory.optimizer_state);
            expect(__LINE__, runs[2].memory.gradients < runs[1].memory.gradients);
            expect(__LINE__, runs[3].memory.parameters < runs[2].memory.parameters);
        }
    }
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, misuse, NULL) == ZERO_OK);
    /* The ranks return 0, but their engines are broken. */
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, broken, NULL) == ZERO_CALLBACK
                         && strstr(zero_last_error(), "returned 42") != NULL);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, return_early, NULL) == ZERO_ABORTED
                         && strstr(zero_last_error(), "rank 1") != NULL);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, in_block, NULL) == ZERO_OK);
    if (directory != NULL) {
        check_checkpoints(directory);
    }
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, update, NULL) == ZERO_OK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, unclipped, NULL) == ZERO_OK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, leave_unused, NULL) == ZERO_OK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, skip_norm, NULL) == ZERO_OK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, add, NULL) == ZERO_OK);
    expect(__LINE__, zero_run_ranks(RANKS, 60.0, leave, NULL) == ZERO_INVALID_ARGUMENT
                         && strstr(zero_last_error(), "values of zero_sum()") != NULL);
    int number = -7;
    expect(__LINE__, zero_run_ranks(RANKS, 0.0, return_number, &number) == ZERO_CALLBACK
                         && strstr(zero_last_error(), "rank 2 returned -7") != NULL);
    expect(__LINE__, zero_run_ranks(0, 0.0, add, NULL) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_run_ranks(1, -1.0, add, NULL) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_run_ranks(1, (double)NAN, add, NULL) == ZERO_INVALID_ARGUMENT);
    expect(__LINE__, zero_run_ranks(1, 0.0, NULL, NULL) == ZERO_INVALID_ARGUMENT);
    check_handler();
    expect(__LINE__, strcmp(zero_status_name(ZERO_TIMED_OUT), "ZERO_TIMED_OUT") == 0);
    expect(__LINE__, strcmp(zero_version(), ZERO_VERSION) == 0);
    return failures == 0 ? 0 : 1;
}
