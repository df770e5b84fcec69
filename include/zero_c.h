/* zero from C: the stages of include/zero behind functions, for programs in C11 and newer, C++ of
 * any standard, and languages that call C. Link zero::c (libzero_c); it needs no C++ compiler.
 *
 * Every function that can fail returns a zero_status; zero_last_error() then tells why, with the
 * parameter, the rank and the remedy. An argument that is refused changes nothing. After another
 * failure zero_is_broken() tells whether the engine can go on. No exception leaves a function.
 *
 * Engines belong to one thread at a time. Functions marked "collective" are called by every rank
 * of the group, in the same order. Results have the same bits as with the C++ headers.
 *
 * src/c implements them; src/c/guard.cpp turns exceptions into statuses.
 */
#ifndef ZERO_C_H
#define ZERO_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ZERO_C_API __attribute__((visibility("default")))
#else
#define ZERO_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

typedef enum zero_status {
    ZERO_OK = 0,
    ZERO_INVALID_ARGUMENT = 1, /* refused; nothing was changed */
    ZERO_OUT_OF_ORDER = 2,     /* a call that the protocol does not allow here; nothing changed */
    ZERO_MISMATCH = 3,         /* the ranks registered different models or call differently */
    ZERO_NO_GRADIENTS = 4,     /* no rank reported a gradient: the step ended and changed nothing.
                                  With options.require_gradients, a unit without one: the step goes
                                  on, or ends by zero_cancel_step() */
    ZERO_ABORTED = 5,          /* another rank failed or left; the text holds its cause */
    ZERO_TIMED_OUT = 6,        /* a rank did not arrive in time */
    ZERO_BROKEN = 7,           /* an earlier failure broke the engine; step count, last report and
                                  memory can be read */
    ZERO_CHECKPOINT = 8,       /* a checkpoint is missing, damaged or does not fit */
    ZERO_OUT_OF_MEMORY = 9,    /* memory could not be allocated */
    ZERO_CALLBACK = 10,        /* a callback of the program returned a value other than 0 */
    ZERO_UNSUPPORTED = 11,     /* this library was built without the feature */
    ZERO_FAILED = 12           /* anything else */
} zero_status;

/* The message of the last call of this thread that failed; never null. Valid until the next call
 * of this thread that fails, so do not pass it to printf() together with such a call. */
ZERO_C_API char const* zero_last_error(void);

/* A function of the program that sees every failure, on the thread and before the return of the
 * call that failed. It may end the program, and must not call this library. */
typedef void (*zero_error_handler)(zero_status status, char const* message);

/* Sets the handler of all threads; null: none, as at the start. A program whose handler does not
 * return need not look at the statuses. */
ZERO_C_API void zero_set_error_handler(zero_error_handler handler);

/* A handler: prints the message to stderr and ends the program with exit code 1. It flushes all
 * files, but calls no atexit() functions, because other ranks are still running. */
ZERO_C_API void zero_exit_on_error(zero_status status, char const* message);

/* Fails with a message of the program's own, and returns ZERO_FAILED. A rank whose body returns it
 * ends its group with this cause, also from an update: `return zero_fail("no such file");`. null:
 * no text. */
ZERO_C_API zero_status zero_fail(char const* message);

/* The name of a status: "ZERO_OK", ... */
ZERO_C_API char const* zero_status_name(zero_status status);

/* The version of the library: "0.2.0". */
ZERO_C_API char const* zero_version(void);

/* ---- Ranks ---- */

/* One rank of a group. */
typedef struct zero_communicator zero_communicator;

/* The program of one rank, a thread or a process. A value other than 0 ends the group: the other
 * ranks get ZERO_ABORTED.
 * Return the status of a call that failed, and its message becomes their cause. */
typedef int (*zero_rank_body)(zero_communicator* communicator, void* user);

/* Runs `body` as `world` ranks, each in a thread of its own, and returns when all have ended. The
 * communicators end with it.
 * time_out: seconds that a rank waits for its peers in one call; 0: 30 minutes.
 * Returns the first failure, with its message: also that of a rank which returned 0 after its group
 * had failed. */
ZERO_C_API zero_status zero_run_ranks(int world, double time_out, zero_rank_body body, void* user);

/* Runs `body` as one rank of the processes that mpirun, mpiexec or srun started; one process alone
 * is a group of one. Initialises MPI unless the program has, with MPI_THREAD_MULTIPLE, and then
 * finalises it, so such a program calls it once. Otherwise it is collective over MPI_COMM_WORLD.
 * time_out: as for zero_run_ranks().
 * Returns the failure of this rank; the other ranks get ZERO_ABORTED with its message. End the
 * process with a code other than 0 then: if a rank does not answer, MPI is not finalised, and the
 * launcher ends the others. ZERO_UNSUPPORTED if the library was built without MPI. */
ZERO_C_API zero_status zero_run_mpi(double time_out, zero_rank_body body, void* user);

ZERO_C_API int zero_rank(zero_communicator const* communicator);
ZERO_C_API int zero_world(zero_communicator const* communicator);

/* Replaces `count` numbers by their sums over the ranks, added in the order of ranks: for losses.
 * Collective. */
ZERO_C_API zero_status zero_sum(zero_communicator* communicator, float* values, size_t count);

/* ---- Model and options ---- */

typedef enum zero_dtype { ZERO_FLOAT = 0, ZERO_BFLOAT16 = 1, ZERO_FLOAT16 = 2 } zero_dtype;
typedef enum zero_optimizer { ZERO_ADAMW = 0, ZERO_SGD = 1 } zero_optimizer;

/* The gradient that a step applies. */
typedef enum zero_reduction {
    ZERO_MEAN = 0,           /* the mean over ranks and micro-steps */
    ZERO_SUM = 1,            /* the sum */
    ZERO_MEAN_OVER_RANKS = 2 /* the mean over ranks of the sums over micro-steps */
} zero_reduction;

/* When gradients are summed over the ranks. The result's bits depend on it. */
typedef enum zero_schedule {
    ZERO_SCHEDULE_DEFAULT = 0, /* once a step in stages 0 and 1, every micro-step in 2 and 3 */
    ZERO_BOUNDARY = 1,
    ZERO_EVERY_MICRO_STEP = 2
} zero_schedule;

/* One tensor. Set all members to zero first: zero_parameter p = {0}. */
typedef struct zero_parameter {
    char const* name;    /* unique, for messages and checkpoints; null: "parameter 3" */
    size_t elements;     /* any number */
    size_t unit;         /* number of the layer that uses it, from 0 in order of use */
    size_t const* units; /* all of them, for a parameter that several layers use; null: `unit`
                            alone */
    size_t unit_count;   /* length of `units` */
    size_t group;        /* index into the options' groups */
    int frozen;          /* not 0: it has neither gradient nor optimizer state */
    void* data;          /* initial values in options.dtype, read by zero_create(), or null for
                            zeros; inside options.block: where it stays */
    void* gradient;      /* its gradient in memory of the program, in options.dtype; null: in the
                            engine's. Null if frozen */
} zero_parameter;

/* Hyper-parameters of a parameter group. AdamW reads the betas and epsilon, Sgd momentum and
 * nesterov, both the rest. Copy options.group after zero_options_init(), then change members. */
typedef struct zero_group {
    double learning_rate_factor;  /* multiplies the learning rate of a step; 1 */
    double weight_decay;          /* 0.01 */
    double beta1, beta2, epsilon; /* 0.9, 0.999, 1e-8 */
    double momentum;              /* 0.9 */
    int nesterov;                 /* 0 */
    int is_unclipped; /* not 0: options.clip_norm neither counts the group's gradients in the norm
                         nor scales them; 0. zero_report.gradient_norm counts them */
    uint64_t reserved[4]; /* 0. A later version puts members here, so that the size of a group in
                             options and in lists stays the same */
} zero_group;

/* Call zero_options_init() first, then change members. All ranks pass equal options, except for
 * addresses. */
typedef struct zero_options {
    size_t size;              /* of this struct: set by zero_options_init() */
    int stage;                /* 0 to 3; default 2 */
    zero_dtype dtype;         /* type of parameters and gradients; ZERO_FLOAT. The other types have
                                 master weights in float; ZERO_FLOAT16 has a loss scale, which
                                 grows and shrinks */
    zero_optimizer optimizer; /* ZERO_ADAMW */
    zero_group group;         /* group of all parameters, if `groups` is null */
    zero_group const* groups; /* one for each group number, or null */
    size_t group_count;       /* length of `groups` */
    void* block;              /* stages 0 to 2: memory of the program in which all parameters
                                 lie and stay; null: the engine allocates them. Then set the
                                 `gradient` of each parameter as well: the engine's memory for it
                                 may not be contiguous */
    size_t block_elements;    /* size of the block, gaps included */
    float clip_norm;          /* largest global gradient norm; 0: no clipping */
    zero_reduction reduction; /* ZERO_MEAN */
    zero_schedule schedule;   /* ZERO_SCHEDULE_DEFAULT */
    size_t bucket_bytes;      /* bytes communicated at once; 25 MiB. Ignored in stage 3, where a
                                 unit is a bucket */
    int require_gradients;    /* not 0: a unit without a gradient is an error, not zeros */
    float initial_loss_scale; /* ZERO_FLOAT16: 65536 */
    size_t prefetch_elements; /* stage 3: units gathered in advance, in elements; default
                                 ZERO_ONE_UNIT */
    size_t keep_units;        /* stage 3: the last units of the forward pass that stay gathered
                                 for the backward pass; 0 */
    int poison;               /* not 0: released memory is filled with NaN, to find pointers that
                                 are used too long; 0 */
    int count_zero_gradients; /* not 0: zero_report.zero_gradients is counted; 0 */
    int group_norms;          /* not 0: zero_last_group_norms() has norms; 0 */
    int leave_unused;         /* not 0: a parameter of which no rank has a gradient in a step keeps
                                 its value and its optimizer state, and the bias correction counts
                                 its own updates; 0: its gradient is zero. A gradient exists if
                                 zero_gradient() or zero_open() gave its memory, or if it is
                                 registered and its unit is reported, unless zero_note_unused()
                                 says otherwise. Not with require_gradients */
    float skip_norm;          /* a step with a larger gradient norm changes nothing; 0: no limit */
    float skip_norm_factor;   /* the same for a norm above this multiple of a running norm, above
                                 1; 0: no limit */
    size_t skip_norm_window;  /* steps of that running norm; 128 (docs/options.md, "Steps that are
                                 too large") */
} zero_options;

/* The value of prefetch_elements for one unit, however large. */
#define ZERO_ONE_UNIT ((size_t)-1)

/* Sets every option to its default. size: sizeof(zero_options), by which a library knows the
 * options that a program was compiled with. */
ZERO_C_API void zero_options_init(zero_options* options, size_t size);

/* ---- Engine ---- */

typedef struct zero_engine zero_engine;

/* Makes the engine of one rank. Collective; waits. The lists and names may be freed afterwards; the
 * block of the options and registered gradients must live until the last zero_step() or
 * zero_cancel_step() returned (docs/storage.md, "What must outlive what"). */
ZERO_C_API zero_status zero_create(zero_communicator* communicator,
                                   zero_parameter const* parameters, size_t count,
                                   zero_options const* options, zero_engine** engine);

/* Ends an engine, which must not be used afterwards; null is allowed. Inside a step it aborts the
 * group. */
ZERO_C_API void zero_destroy(zero_engine* engine);

/* Whether a failure left the engine unable to go on. */
ZERO_C_API int zero_is_broken(zero_engine const* engine);

/* ---- A step: zero_begin_step(), micro-steps, zero_step() ---- */

/* Begins a step of `micro_steps` forward and backward passes, whose gradients are added, and the
 * first of them. Fails on every rank, two steps later, if 100 steps in a row were skipped. */
ZERO_C_API zero_status zero_begin_step(zero_engine* engine, size_t micro_steps);

/* Ends a micro-step, in which no unit may be open, and begins the next one. Collective. */
ZERO_C_API zero_status zero_next_micro_step(zero_engine* engine);

/* Makes the parameters of a unit readable until zero_release(). Calls may be nested. Collective in
 * stage 3. May be called outside of steps. */
ZERO_C_API zero_status zero_acquire(zero_engine* engine, size_t unit);
ZERO_C_API zero_status zero_release(zero_engine* engine, size_t unit);

/* A rank that does not use a unit calls it where the others call zero_acquire(). */
ZERO_C_API zero_status zero_skip(zero_engine* engine, size_t unit);

/* For tables of pointers, one for each parameter: acquires a unit, with `gradients` also leases its
 * gradients, and sets the pointers of its parameters. `gradients` is null in a forward pass; the
 * pointers of frozen parameters become null there. Parameters of type ZERO_FLOAT. */
ZERO_C_API zero_status zero_open(zero_engine* engine, size_t unit, float** weights,
                                 float** gradients);

/* Ends zero_open(): reports leased gradients as complete, and releases the unit. */
ZERO_C_API zero_status zero_close(zero_engine* engine, size_t unit);

/* The memory of a parameter while one of its units is acquired. Null on failure. In stage 3 each
 * zero_acquire() may move it. */
ZERO_C_API void const* zero_weight(zero_engine* engine, size_t unit, size_t parameter);

/* Leases the memory of a unit's gradients until zero_gradients_ready(). It is zero the first time
 * in a micro-step, and the backward pass adds to it. is_overwritten: not 0 if the backward pass
 * writes every element, so that nothing is cleared. */
ZERO_C_API zero_status zero_gradients(zero_engine* engine, size_t unit, int is_overwritten);

/* The memory of a parameter's gradient between zero_gradients() and zero_gradients_ready(). Null on
 * failure, and for a frozen parameter. */
ZERO_C_API void* zero_gradient(zero_engine* engine, size_t unit, size_t parameter);

/* With options.leave_unused: nothing is added to this gradient in this micro-step, although
 * zero_gradient() or zero_open() gave its memory, or it is registered. */
ZERO_C_API zero_status zero_note_unused(zero_engine* engine, size_t unit, size_t parameter);

/* The gradients of a unit are complete. Starts to reduce them. Collective in stage 3. */
ZERO_C_API zero_status zero_gradients_ready(zero_engine* engine, size_t unit);

/* The factor of the loss, inside a step: 1 unless the type is ZERO_FLOAT16. */
ZERO_C_API zero_status zero_loss_scale(zero_engine* engine, float* scale);

/* Ends the last micro-step and the step: norm, clipping, update and, in stages 1 and 2,
 * publication. No unit may be open. A step with an infinite or NaN gradient changes nothing and is
 * not a failure; zero_last_report() reports it. Collective; does not wait. */
ZERO_C_API zero_status zero_step(zero_engine* engine, double learning_rate);

/* A slice of one parameter that this rank updates. A parameter may come in several slices, also on
 * one rank. */
typedef struct zero_slice {
    size_t parameter;       /* its number */
    size_t begin;           /* the slice's first element inside the parameter */
    size_t elements;        /* length of the slice */
    float* weights;         /* to be updated; master weights if there are any */
    float const* gradients; /* reduced, unscaled, averaged and clipped */
    float* states[2];       /* optimizer states, zero at the start; those that do not exist: null */
    double learning_rate;   /* as given to the step, times the factor of the group */
    size_t group;           /* group of the parameter */
} zero_slice;

/* Updates a slice. Called on the thread of the step, slice after slice. A value other than 0 breaks
 * the engine, since weights may have been written; that of zero_fail() carries its message. */
typedef int (*zero_update)(zero_slice const* slice, void* user);

/* The same as zero_step() with an update function of the program. Waits. A skipped step does not
 * call it. */
ZERO_C_API zero_status zero_step_with(zero_engine* engine, double learning_rate, zero_update update,
                                      void* user);

/* Gives up a step, on every rank at the same point. Parameters and states stay as they were. */
ZERO_C_API zero_status zero_cancel_step(zero_engine* engine);

typedef struct zero_report {
    uint64_t step_count;    /* steps that were not skipped */
    int is_skipped;         /* not 0: the last step changed nothing. 1: a gradient was not finite;
                               2: the norm was above options.skip_norm or skip_norm_factor */
    int has_norm;           /* with clipping, ZERO_FLOAT16, or skipping of non-finite gradients */
    double gradient_norm;   /* global, before clipping */
    float clip_coefficient; /* min(1, clip_norm / (norm + 1e-6)) */
    int64_t non_finite;     /* infinite or NaN gradients */
    float loss_scale;       /* loss scale of the step */
    int64_t zero_gradients; /* with options.count_zero_gradients: gradients that are 0 or -0, of all
                               parameters that are not frozen, on all ranks; otherwise 0 */
} zero_report;

/* The number of steps that were not skipped, those before a loaded checkpoint included. Waits. */
ZERO_C_API zero_status zero_step_count(zero_engine* engine, uint64_t* count);

/* Reports the last step of this engine. Waits for it. */
ZERO_C_API zero_status zero_last_report(zero_engine* engine, zero_report* report);

/* The gradient norm of each parameter group in the last step of this engine, with
 * options.group_norms. Infinite for a group with a gradient that is not finite. groups: the number
 * of all groups. Waits. */
ZERO_C_API zero_status zero_last_group_norms(zero_engine* engine, double* norms, size_t groups);

/* ---- Parameters and states; between steps, waits ---- */

/* The whole parameter in float, from the master weights if there are any. Collective. */
ZERO_C_API zero_status zero_get_parameter(zero_engine* engine, size_t parameter, float* values,
                                          size_t elements);

/* Sets the whole parameter on every rank to the values of rank 0. Collective. Optimizer states
 * stay. */
ZERO_C_API zero_status zero_set_parameter(zero_engine* engine, size_t parameter,
                                          float const* values, size_t elements);

/* Copies all parameters, one after the other in the options' dtype, into a block of the program.
 * Collective. A rank that needs no copy passes null and 0. */
ZERO_C_API zero_status zero_gather(zero_engine* engine, void* block, size_t elements);

/* Sets the factor by which the learning rate of a group is multiplied. Equal on all ranks. */
ZERO_C_API zero_status zero_set_learning_rate_factor(zero_engine* engine, size_t group,
                                                     double factor);

/* Saves the training state into a new checkpoint below `directory`, or loads the last one. It does
 * not depend on stage and number of ranks. Collective.
 * position: a number of the program's own, for instance the next step of its loop or its place in
 * the data. zero_load() returns it, unless `position` is null, and refuses a checkpoint without it,
 * which another program saved. zero_step_count() cannot take its place, because it does not count
 * skipped steps. */
ZERO_C_API zero_status zero_save(zero_engine* engine, char const* directory, uint64_t position);
ZERO_C_API zero_status zero_load(zero_engine* engine, char const* directory, uint64_t* position);

/* Sets `has_checkpoint` to 1 if there is a complete checkpoint below `directory`, which need not
 * exist; otherwise to 0. */
ZERO_C_API zero_status zero_has_checkpoint(char const* directory, int* has_checkpoint);

/* ---- Memory ---- */

/* Bytes of one rank. */
typedef struct zero_memory {
    uint64_t parameters; /* in the engine's or the program's memory */
    uint64_t gradients;  /* sums of gradients */
    uint64_t master_weights;
    uint64_t optimizer_state;
    uint64_t gradient_leases;  /* gradients that are written or sent at the moment */
    uint64_t parameter_leases; /* parameters that are gathered at the moment */
    uint64_t other;            /* tables, scalars, scratch memory and the ring of commands of the
                                  engine's queue, at most 1.3 MB */
    uint64_t engine_bytes;     /* allocated by the engine: all except memory of the program */
    uint64_t total_bytes;      /* with options.block and the program's block of gradients */
} zero_memory;

/* The bytes of an engine, equal to what it allocated. */
ZERO_C_API zero_status zero_memory_of(zero_engine const* engine, zero_memory* memory);

/* The bytes of rank 0 of `world` before anything is allocated, without `other`, if the
 * engine allocates the parameters. It needs no communicator and no data. */
ZERO_C_API zero_status zero_plan(zero_parameter const* parameters, size_t count,
                                 zero_options const* options, int world, zero_memory* memory);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ZERO_C_H */
