// SPDX-License-Identifier: Apache-2.0
{
    const fs = require('fs');
    const blocks = [];
    for (let last = 0; last !== 10;) {
        const block = Buffer.alloc(1 << 18);
        const length = fs.readSync(3, block);
        if (!length)
            process.reallyExit(0);
        last = block[length - 1];
        blocks.push(block.subarray(0, length));
    }
    const start = JSON.parse(Buffer.concat(blocks).toString());
    require('vm').runInThisContext(start.source, {filename: 'cay:core'})(require, (name) => import(name));
}
