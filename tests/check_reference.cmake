# cmake -DHTML=<folder> -P check_reference.cmake
# The most important pages exist and contain their text. An input filter that removes too much would leave nothing for Doxygen to warn about.

function(expect page text)
    set(file "${HTML}/${page}.html")
    if(NOT EXISTS "${file}")
        message(FATAL_ERROR "the reference has no page ${page}.html")
    endif()
    file(READ "${file}" content)
    string(FIND "${content}" "${text}" position)
    if(position LESS 0)
        message(FATAL_ERROR "the page ${page}.html does not contain '${text}'")
    endif()
endfunction()

expect(classzero_1_1ZeroStage "at most one per category")
expect(classzero_1_1Engine "gradients_ready")
expect(classzero_1_1Engine "Starts a step")
expect(structzero_1_1AdamW "algorithm 2")
expect(structzero_1_1DynamicLossScaler "Whether a step with infinite or NaN gradients changes nothing.")
expect(classzero_1_1Hierarchical "W, the number of ranks of the group.")
