// A file of metrics: a line of JSON for each step, and the plan of memory as the first one. The log
// waits for no step that is less than 4 steps old, so the queue stays full.

#include <zero/stage/report_log.hpp>
#include <zero/zero.hpp>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

int main() {
    using Zero = zero::ZeroStage<2, zero::AdamW>;
    std::ostringstream metrics; // a std::ofstream in a trainer
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator, {{.name = "weights", .elements = 1000}},
                    {.gradient_clipping = 1.0F});
        bool const writes = communicator.rank() == 0; // every rank has the same report
        if (writes) metrics << to_json(engine.memory_plan()) << '\n';
        auto const write = [&](zero::StepReport const& report) {
            if (writes) metrics << to_json(report) << '\n';
            if (writes && report.serial % 10 == 0) std::puts(to_string(report).c_str());
        };
        zero::ReportLog log(engine, write, 4);
        for (int step = 0; step < 20; ++step) {
            engine.begin_step();
            for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
                auto const gradients = engine.gradients(0);
                for (float& value : gradients[0]) value = 0.125F / static_cast<float>(step + 1);
                engine.gradients_ready(0);
            }
            log.add(engine.step(1e-3));
        }
        log.finish(); // the last 4 steps
    });
    std::cout << metrics.str().substr(0, metrics.str().find("\"step_count\": 2,")) << "...\n";
    std::istringstream lines(metrics.str());
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        std::string const begin = "{\"serial\": " + std::to_string(count) + ",";
        if (count != 0 && line.rfind(begin, 0) != 0) return 1;
    }
    return count == 21 ? 0 : 1;
}
