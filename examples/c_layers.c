/* A tied parameter and a tensor stacked over layers, in C: c_layers STAGE RANKS. The model learns
 * which word follows which. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zero_c.h>

enum { WORDS = 12, WIDTH = 16, LAYERS = 3, HEAD = LAYERS + 1, STEPS = 600 };

typedef struct {
    float embedding[WORDS * WIDTH];        /* also the matrix of the head */
    float stacked[LAYERS * WIDTH * WIDTH]; /* the matrices of all layers */
} Model;

/* Units: 0 is the embedding, 1 + l layer l, HEAD the head. */
static zero_engine* shard(zero_communicator* ranks, Model* m, int stage) {
    static char const* const names[LAYERS] = {"layer 0", "layer 1", "layer 2"};
    //[tied
    size_t const first_and_last[] = {0, HEAD};
    zero_parameter list[1 + LAYERS] = {{.name = "embedding",
                                        .elements = WORDS * WIDTH,
                                        .units = first_and_last,
                                        .unit_count = 2,
                                        .data = m->embedding}};
    // tied]
    //[stacked
    for (size_t l = 0; l < LAYERS; ++l)
        list[1 + l] = (zero_parameter){.name = names[l],
                                       .elements = WIDTH * WIDTH,
                                       .unit = 1 + l,
                                       .data = m->stacked + l * WIDTH * WIDTH};
    // stacked]
    zero_options options;
    zero_options_init(&options, sizeof options);
    options.stage = stage;
    zero_engine* engine;
    zero_create(ranks, list, 1 + LAYERS, &options, &engine);
    return engine;
}

/* Adds the gradients of one word; returns its loss. */
static float learn(zero_engine* engine, int word, int next) {
    float *w[1 + LAYERS], *g[1 + LAYERS], x[LAYERS + 1][WIDTH], d[WIDTH] = {0}, p[WORDS],
                                                                sum = 0.0F;
    zero_open(engine, 0, w, NULL);
    memcpy(x[0], w[0] + word * WIDTH, sizeof x[0]);
    zero_close(engine, 0);
    for (int l = 0; l < LAYERS; ++l) {
        zero_open(engine, 1 + l, w, NULL);
        for (int r = 0; r < WIDTH; ++r) {
            float y = 0.0F;
            for (int c = 0; c < WIDTH; ++c) y += w[1 + l][r * WIDTH + c] * x[l][c];
            x[l + 1][r] = tanhf(y);
        }
        zero_close(engine, 1 + l);
    }
    zero_open(engine, HEAD, w, g);
    for (int k = 0; k < WORDS; ++k) {
        float score = 0.0F;
        for (int c = 0; c < WIDTH; ++c) score += w[0][k * WIDTH + c] * x[LAYERS][c];
        sum += p[k] = expf(score);
    }
    for (int k = 0; k < WORDS; ++k)
        for (int c = 0; c < WIDTH; ++c) {
            float const error = p[k] / sum - (k == next);
            g[0][k * WIDTH + c] += error * x[LAYERS][c];
            d[c] += error * w[0][k * WIDTH + c];
        }
    zero_close(engine, HEAD);
    for (int l = LAYERS; l-- > 0;) {
        float below[WIDTH] = {0};
        zero_open(engine, 1 + l, w, g);
        for (int r = 0; r < WIDTH; ++r)
            for (int c = 0; c < WIDTH; ++c) {
                float const error = d[r] * (1.0F - x[l + 1][r] * x[l + 1][r]);
                g[1 + l][r * WIDTH + c] += error * x[l][c];
                below[c] += error * w[1 + l][r * WIDTH + c];
            }
        zero_close(engine, 1 + l);
        memcpy(d, below, sizeof d);
    }
    zero_open(engine, 0, w, g); /* the same memory as in the head */
    for (int c = 0; c < WIDTH; ++c) g[0][word * WIDTH + c] += d[c];
    zero_close(engine, 0);
    return -logf(p[next] / sum);
}

static int train(zero_communicator* ranks, void* stage) {
    Model m;
    for (int i = 0; i < WORDS * WIDTH; ++i) m.embedding[i] = sinf((float)(7 * i + 1));
    for (int i = 0; i < LAYERS * WIDTH * WIDTH; ++i)
        m.stacked[i] = 0.4F * sinf((float)(11 * i + 3));
    zero_engine* engine = shard(ranks, &m, *(int*)stage);
    float loss = 0.0F;
    for (int step = 0; step < STEPS; ++step) {
        int const word = (step * zero_world(ranks) + zero_rank(ranks)) % WORDS;
        zero_begin_step(engine, 1);
        loss = learn(engine, word, (5 * word + 1) % WORDS);
        zero_step(engine, 3e-3);
    }
    zero_sum(ranks, &loss, 1);
    loss /= (float)zero_world(ranks);
    if (zero_rank(ranks) == 0) printf("loss %.4f\n", loss);
    zero_destroy(engine);
    return loss < 0.2F ? 0 : 1;
}

int main(int count, char** arguments) {
    int stage = count > 1 ? atoi(arguments[1]) : 3;
    zero_set_error_handler(zero_exit_on_error);
    return zero_run_ranks(count > 2 ? atoi(arguments[2]) : 2, 60.0, train, &stage);
}
