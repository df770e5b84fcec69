// A model that no rank can hold: initialised where its shards are, changed between steps, and with
// a layer that not every rank uses. The program of the guide "A model that no rank can hold".

#include <zero/stage/gathered_parameters.hpp>
#include <zero/zero.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr int ranks = 4;
constexpr std::size_t layers = 6, elements = 5000;

using Zero = zero::ZeroStage<3, zero::AdamW, zero::Parameters<zero::bfloat16>>;

/// The layers of the model. Each value is a function of the layer and the element.
std::vector<Zero::Registration> registrations() {
    std::vector<Zero::Registration> list;
    for (std::size_t layer = 0; layer < layers; ++layer)
        list.push_back({.name = "layer" + std::to_string(layer) + ".weight",
                        .elements = elements,
                        .units = {layer},
                        .initialise =
                            [layer](std::size_t begin, std::span<zero::bfloat16> values) {
                                auto const key = zero::ops::random_key(1234, layer); // a seed
                                for (std::size_t i = 0; i < values.size(); ++i)
                                    values[i] = zero::from_float<zero::bfloat16>(
                                        0.1F * (zero::ops::uniform(key, begin + i) - 0.5F));
                            },
                        .is_deterministic = true}); // every rank may compute it
    return list;
}

/// Sets the first values of the first layer on rank 0, and clears the last layer on every rank.
void change(Zero& engine, int rank) {
    auto first = zero::gather(engine, {"layer0.weight"}, zero::Gather::one_rank_writes);
    if (rank == 0)
        for (std::size_t i = 0; i < 64; ++i) first.writable("layer0.weight")[i] = 0.0F;
    first.commit(); // the values of rank 0 reach every shard, replica and master weight

    auto last = zero::gather(engine, {"layer5.weight"}, zero::Gather::all_write_equally);
    for (float& value : last.writable("layer5.weight")) value = 0.0F;
    last.commit(); // sends a hash, and refuses different values
}

/// One step in which rank 0 does not use layer 3.
void step(Zero& engine, int rank) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(1)) {
        for (std::size_t layer = 0; layer < layers; ++layer) {
            if (rank == 0 && layer == 3) {
                engine.skip(layer); // the other ranks gather it
                continue;
            }
            auto const weights = engine.acquire(layer); // the forward pass reads weights[layer]
        }
        for (std::size_t layer = layers; layer-- > 0;) {
            if (rank == 0 && layer == 3) {
                engine.skip(layer);
                engine.gradients_ready(layer); // counts as zeros
                continue;
            }
            auto const weights = engine.acquire(layer);
            auto const gradients = engine.gradients(layer);
            for (zero::bfloat16& value : gradients[layer])
                value = zero::from_float<zero::bfloat16>(1.0F); // as from a backward pass
            engine.gradients_ready(layer);
        }
    }
    engine.step(0.001);
}

} // namespace

int main() {
    std::vector<std::vector<float>> seen(ranks);
    std::vector<std::uint64_t> sent(ranks);
    zero::run_ranks(ranks, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator, registrations());
        auto const rank = static_cast<std::size_t>(communicator.rank());
        sent[rank] = communicator.traffic()[zero::CollectiveKind::broadcast].elements;
        change(engine, communicator.rank());
        step(engine, communicator.rank());
        auto const read = zero::gather(engine, {"layer0.weight", "layer3.weight", "layer5.weight"});
        for (char const* const name : {"layer0.weight", "layer3.weight", "layer5.weight"})
            seen[rank].push_back(read.values(name).front());
    });
    std::printf("elements sent to initialise the model: %llu\n",
                static_cast<unsigned long long>(sent[0]));
    std::printf("layer 0 after a step from zero: %.4f\n", static_cast<double>(seen[0][0]));
    bool const is_right = sent == std::vector<std::uint64_t>(ranks) && seen[0] == seen[3]
                          && seen[0][0] < -0.0009F && seen[0][2] < -0.0009F;
    std::printf("%s\n", is_right ? "every rank reads the same" : "WRONG");
    return is_right ? 0 : 1;
}
