// Prints the resident and the planned memory of a rank after one step on GPT-2 124M with bfloat16
// parameters and the default options, in every stage. Counts instead of timing.

#include "support/resident_memory.hpp"
#include "support/shapes.hpp"

#include <cstdio>
#include <exception>
#include <string>

int main(int count, char** arguments) try {
    int const world = count > 1 ? std::stoi(arguments[1]) : 2;
    std::printf(
        "| units | stage | planned MB | resident MB | of stage 0 |\n|---|---|---|---|---|\n");
    for (bool const has_units : {false, true}) {
        auto model = zero::test::gpt2_124m();
        for (auto& spec : model) {
            if (!has_units) {
                spec.units = {0};
            }
        }
        double replicated = 0.0;
        for (int const stage : {0, 1, 2, 3}) {
            auto const memory = zero::test::resident_memory(stage, model, world);
            auto const resident = static_cast<double>(memory.resident);
            replicated = stage == 0 ? resident : replicated;
            std::printf("| %s | %d | %.0f | %.0f | %.2f |\n", has_units ? "14" : "one", stage,
                        static_cast<double>(memory.planned) * 1e-6, resident * 1e-6,
                        resident / replicated);
        }
    }
    return 0;
} catch (std::exception const& error) {
    std::fprintf(stderr, "resident_table [ranks]: %s\n", error.what());
    return 2;
}
