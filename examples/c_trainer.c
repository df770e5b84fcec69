/* c_trainer_plain.c with zero: c_trainer STAGE RANKS. Stage 1 trains in the blocks of the trainer;
 * stages 2 and 3 need neither of them. RANKS are threads; 0: the processes of mpirun or srun. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zero_c.h>

#define LAYERS 8
#define TENSORS (2 * LAYERS)
#define WIDTH 48
#define STEPS 400
#define BATCH 8

typedef struct {
    size_t sizes[TENSORS], total;
    float *block, *gradient_block;
    zero_engine* engine;
    float *weights[TENSORS], *gradients[TENSORS]; /* 2 l: the matrix of layer l, 2 l + 1: its bias */
} Model;

static size_t rows(int layer) { return layer == LAYERS - 1 ? 1 : WIDTH; }
static size_t columns(int layer) { return layer == 0 ? 2 : WIDTH; }

static void model_init(Model* m) {
    m->total = 0;
    for (int l = 0; l < LAYERS; ++l) {
        m->sizes[2 * l] = rows(l) * columns(l);
        m->sizes[2 * l + 1] = rows(l);
        m->total += m->sizes[2 * l] + m->sizes[2 * l + 1];
    }
    m->block = malloc(m->total * sizeof(float));
    m->gradient_block = malloc(m->total * sizeof(float));
    size_t begin = 0;
    for (int t = 0; t < TENSORS; ++t) {
        m->weights[t] = m->block + begin;
        m->gradients[t] = m->gradient_block + begin;
        for (size_t i = 0; i < m->sizes[t]; ++i)
            m->weights[t][i] =
                t % 2 ? 0.0F : 1.5F * sinf((float)(37 * t + 11 * i + 1)) / sqrtf((float)columns(t / 2));
        begin += m->sizes[t];
    }
}

static void model_free(Model* m) {
    free(m->block);
    free(m->gradient_block);
    zero_destroy(m->engine);
}

/* Hands the model to an engine. */
static void shard(Model* m, zero_communicator* ranks, int stage) {
    zero_parameter list[TENSORS];
    for (int t = 0; t < TENSORS; ++t)
        list[t] = (zero_parameter){.elements = m->sizes[t], .unit = t / 2, .data = m->weights[t],
                                   .gradient = stage < 2 ? m->gradients[t] : NULL};
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.stage = stage;
    options.bucket_bytes = 16384; /* the default is for large models: 25 MiB */
    if (stage < 2) options.block = m->block, options.block_elements = m->total;
    zero_create(ranks, list, TENSORS, &options, &m->engine);
    if (stage > 1) free(m->block), free(m->gradient_block), m->block = m->gradient_block = NULL;
}

/* y = tanh(W x + b) of every sample, without tanh in the last layer. */
static void forward(Model const* m, int l, float (*x)[WIDTH], float (*y)[WIDTH]) {
    float const *w = m->weights[2 * l], *b = m->weights[2 * l + 1];
    for (int i = 0; i < BATCH; ++i)
        for (size_t r = 0; r < rows(l); ++r) {
            float sum = b[r];
            for (size_t c = 0; c < columns(l); ++c) sum += w[r * columns(l) + c] * x[i][c];
            y[i][r] = l == LAYERS - 1 ? sum : tanhf(sum);
        }
}

/* Adds to the gradients of layer l and replaces dy, the gradient of y, by that of x. */
static void backward(Model* m, int l, float (*x)[WIDTH], float (*y)[WIDTH], float (*dy)[WIDTH]) {
    float const* w = m->weights[2 * l];
    float *dw = m->gradients[2 * l], *db = m->gradients[2 * l + 1];
    for (int i = 0; i < BATCH; ++i) {
        float dx[WIDTH] = {0};
        for (size_t r = 0; r < rows(l); ++r) {
            float const d = l == LAYERS - 1 ? dy[i][r] : dy[i][r] * (1.0F - y[i][r] * y[i][r]);
            db[r] += d;
            for (size_t c = 0; c < columns(l); ++c) {
                dw[r * columns(l) + c] += d * x[i][c];
                dx[c] += d * w[r * columns(l) + c];
            }
        }
        memcpy(dy[i], dx, sizeof dx);
    }
}

/* Adds the gradients of one batch; returns its loss. */
static float train_batch(Model* m, size_t batch) {
    float y[LAYERS + 1][BATCH][WIDTH], dy[BATCH][WIDTH];
    float loss = 0.0F;
    for (size_t i = 0; i < BATCH; ++i) {
        y[0][i][0] = sinf((float)(3 * (batch * BATCH + i) + 1));
        y[0][i][1] = cosf((float)(7 * (batch * BATCH + i) + 2));
    }
    for (int l = 0; l < LAYERS; ++l) {
        zero_open(m->engine, l, m->weights, NULL);
        forward(m, l, y[l], y[l + 1]);
        zero_close(m->engine, l);
    }
    for (size_t i = 0; i < BATCH; ++i) {
        float const difference = y[LAYERS][i][0] - y[0][i][0] * y[0][i][1];
        dy[i][0] = difference / BATCH;
        loss += 0.5F * difference * difference / BATCH;
    }
    for (int l = LAYERS - 1; l >= 0; --l) {
        zero_open(m->engine, l, m->weights, m->gradients);
        backward(m, l, y[l], y[l + 1], dy);
        zero_close(m->engine, l);
    }
    return loss;
}

/* AdamW on consecutive elements. */
static void adamw(float* w, float const* g, float* m, float* v, size_t n, int step) {
    float const c1 = 1.0F - powf(0.9F, (float)step), c2 = 1.0F - powf(0.999F, (float)step);
    for (size_t i = 0; i < n; ++i) {
        m[i] = 0.9F * m[i] + 0.1F * g[i];
        v[i] = 0.999F * v[i] + 0.001F * g[i] * g[i];
        w[i] -= 3e-3F * (m[i] / c1 / (sqrtf(v[i] / c2) + 1e-8F) + 0.01F * w[i]);
    }
}

static int update(zero_slice const* s, void* step) {
    adamw(s->weights, s->gradients, s->states[0], s->states[1], s->elements, *(int*)step);
    return 0;
}

static float train_step(Model* m, int step, zero_communicator* ranks) {
    zero_begin_step(m->engine, 1);
    float const loss = train_batch(m, (size_t)((step - 1) * zero_world(ranks) + zero_rank(ranks)));
    zero_step_with(m->engine, 3e-3, update, &step);
    return loss;
}

static int train(zero_communicator* ranks, void* stage) {
    Model model;
    model_init(&model);
    shard(&model, ranks, *(int*)stage);
    float loss = 0.0F;
    for (int step = 1; step <= STEPS; ++step) loss = train_step(&model, step, ranks);
    float checksum = 0.0F;
    float* const block = malloc(model.total * sizeof(float));
    zero_gather(model.engine, block, model.total);
    for (size_t i = 0; i < model.total; ++i) checksum += fabsf(block[i]);
    zero_memory memory;
    zero_memory_of(model.engine, &memory);
    size_t const bytes = memory.total_bytes;
    if (zero_rank(ranks) == 0)
        printf("loss %.9g, sum of weights %.9g, %zu bytes\n", loss, checksum, bytes);
    free(block);
    model_free(&model);
    return loss < 0.05F ? 0 : 1;
}

int main(int count, char** arguments) {
    int stage = count > 1 ? atoi(arguments[1]) : 1;
    int const ranks = count > 2 ? atoi(arguments[2]) : 1;
    zero_set_error_handler(zero_exit_on_error);
    return ranks > 0 ? zero_run_ranks(ranks, 60.0, train, &stage)
                     : zero_run_mpi(60.0, train, &stage);
}
