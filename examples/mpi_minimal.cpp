// Processes that mpirun or srun started fit a cosine with a polynomial. Each holds its part of the
// parameters, gradients and optimizer state (stage 3).

#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#include <zero/zero.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>

using Zero = zero::ZeroStage<3, zero::Adam, zero::mpi::Communicator>;

constexpr std::size_t terms = 8, steps = 3000;

/// Trains y = sum of weight[k] * x^k; returns the mean of the last errors of all ranks.
float train(zero::mpi::Communicator& communicator) {
    // Collective: the ranks compare their models, and rank 0 broadcasts its values.
    Zero engine(communicator, {{.name = "weights", .elements = terms, .units = {0}}});
    float error = 0.0F;
    for (std::size_t step = 0; step < steps; ++step) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        float const x = std::sin(static_cast<float>(step * 4 + rank));
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            auto const weights = engine.acquire(0);
            float power[terms];
            error = -std::cos(2.0F * x);
            for (std::size_t k = 0; k < terms; ++k) {
                power[k] = k == 0 ? 1.0F : power[k - 1] * x;
                error += weights[0][k] * power[k];
            }
            auto const gradients = engine.gradients(0);
            for (std::size_t k = 0; k < terms; ++k) gradients[0][k] += error * power[k];
            engine.gradients_ready(0);
        }
        engine.step(0.01);
    }
    return zero::sum_over_ranks(communicator, std::fabs(error))
           / static_cast<float>(communicator.size());
}

int main() {
    zero::mpi::Session session; // MPI_Init_thread, and MPI_Finalize or MPI_Abort at the end
    try {
        // Ends all ranks with an error if one of them is missing for a minute.
        zero::mpi::Communicator communicator(session.world(),
                                             {.time_out = std::chrono::minutes(1)});
        float const error = zero::run_rank(communicator, train);
        if (communicator.rank() == 0) {
            std::printf("%d ranks, error %.3f\n", communicator.size(), static_cast<double>(error));
        }
        return error < 0.05F ? 0 : 1;
    } catch (std::exception const& failure) {
        std::fprintf(stderr, "rank %d: %s\n", session.rank(), failure.what());
        zero::mpi::Session::abort(1);
    }
}
